"""Kaniko builds: the Job we send.

Flags as read in and measured with the maintained fork, osscontainertools/kaniko v1.28.3.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from k8s.names import label_value
from k8s.objects import BUILD_LABEL, MANAGED_BY, Manifest
from k8s.pods import read_pod

CONTAINER = "kaniko"
FETCH = "fetch"  # the init container that alone has the git credentials, where the build runs foreign code
LOGIN = "/kaniko/.docker"  # to the registry
CONTEXT = "/kaniko/buildcontext"  # where Kaniko clones to
FETCHING = "sweepbot/fetch"  # annotation: the Dockerfile of a build that only clones
DOCKERFILE, IGNORE = "sweepbot/dockerfile", "sweepbot/dockerignore"  # annotations of the pod
DIGEST = re.compile("sha256:[0-9a-f]{64}")
GENERATED = "/sweepbot"  # where they lie as files
CA, PUBLIC_CA = "/kaniko/ca", "/kaniko/ssl/certs"  # the second is the executor's own


@dataclass(frozen=True, kw_only=True)
class BuildSpec:
    name: str
    namespace: str
    repo_url: str
    ref: str  # refs/heads/main: Kaniko clones this, then checks the commit out
    commit: str
    submodules: bool = False
    dockerfile: str  # a text, or a path in the repository
    own_dockerfile: bool = False  # it is a path
    ignore: str = ""  # what of the repository stays out, when the Dockerfile is a text
    destination: str  # registry/repository:tag, as Kaniko pushes
    alone: bool = False  # the Dockerfile takes nothing from the repository
    code_only: bool = False  # FROM scratch and COPY: the same files always make the same image, at once
    cache: bool = False  # keep the layers of each RUN in the destination's repository
    executor: str  # Kaniko's own image
    git_secret: str | None = None  # with username and password
    registry_secret: str | None = None  # of type kubernetes.io/dockerconfigjson
    ca: str | None = None  # a ConfigMap with certificates, for git hosts and registries of a company
    plain_http: tuple[str, ...] = ()  # registries without TLS, to push to or to take a base from
    deadline: int = 1800  # seconds

    @property
    def clones_apart(self) -> bool:
        """What a RUN starts can read all that its container has, so the git credentials stay out of that."""
        return bool(self.git_secret) and not (self.alone or self.code_only)


def build_job(spec: BuildSpec) -> Manifest:
    """The Job that builds spec.commit and pushes spec.destination."""
    labels = {MANAGED_BY: "sweepbot", BUILD_LABEL: spec.name, "sweepbot/commit": label_value(spec.commit)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": spec.name, "namespace": spec.namespace, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": spec.deadline,
            "ttlSecondsAfterFinished": 3600,
            "template": {"metadata": {"labels": labels, **_files(spec)}, "spec": _pod(spec)},
        },
    }


def pushed_digest(job: Manifest, pods: Iterable[Manifest], expected: str) -> str | None:
    """The digest of what this Job pushed as `expected`, from the termination message of its pod.

    Kaniko writes the digest before it pushes: without exit code 0 it means nothing.
    """
    if destination(job) != expected:
        return None
    for pod in pods:
        owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
        code, _, message = read_pod(pod, CONTAINER).exit or (None, "", "")
        if job["metadata"]["uid"] in owners and code == 0 and DIGEST.fullmatch(message):
            return message
    return None


def destination(job: Manifest) -> str:
    """registry/repository:tag, as Kaniko pushes; empty for a Job that is no build."""
    containers = job["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = [argument for each in containers for argument in each.get("args") or ()]
    flag = "--destination="
    return next((a.removeprefix(flag) for a in arguments if a.startswith(flag)), "")


def with_base(job: Manifest, tag: str, digest: str) -> Manifest:
    """The same Job with the base of its generated Dockerfile by digest: a tag can be moved."""
    template = job["spec"]["template"]
    dockerfile = template["metadata"]["annotations"][DOCKERFILE].replace(f":{tag}\n", f"@{digest}\n")
    annotations = {**template["metadata"]["annotations"], DOCKERFILE: dockerfile}
    metadata = {**template["metadata"], "annotations": annotations}
    return {**job, "spec": {**job["spec"], "template": {**template, "metadata": metadata}}}


def _files(spec: BuildSpec) -> Manifest:
    """A generated Dockerfile is an annotation of the pod, which sees it as a file: it goes with the Job."""
    generated = {} if spec.own_dockerfile else {DOCKERFILE: spec.dockerfile, IGNORE: spec.ignore}
    files = generated | ({FETCHING: "FROM scratch\n"} if spec.clones_apart else {})
    return {"annotations": files} if files else {}


def _pod(spec: BuildSpec) -> Manifest:
    volumes = _volumes(spec)
    build = _container(spec, CONTAINER, _arguments(spec), volumes)
    fetch = []
    if spec.clones_apart:
        arguments = _escaped([*_clone(spec), f"--dockerfile={GENERATED}/Fetch", "--no-push"])
        others = {path: volume for path, volume in volumes.items() if path != LOGIN}
        fetch = [_container(spec, FETCH, arguments, others)]
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **({"initContainers": fetch} if fetch else {}),
        "containers": [build],
        "volumes": list(volumes.values()),
    }


def _container(spec: BuildSpec, name: str, arguments: list[str], volumes: dict[str, Manifest]) -> Manifest:
    return {
        "name": name,
        "image": spec.executor,
        "args": arguments,
        "env": _environment(spec, with_login=name == FETCH or not spec.clones_apart),
        # Unpacking and RUN need root and these five capabilities, and nothing else.
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {
                "drop": ["ALL"],
                "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"],
            },
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "resources": _resources(spec),
        "volumeMounts": [
            {"name": volume["name"], "mountPath": path} | ({} if path == CONTEXT else {"readOnly": True})
            for path, volume in volumes.items()
        ],
    }


def _volumes(spec: BuildSpec) -> dict[str, Manifest]:
    """By where they are mounted."""
    found: dict[str, Manifest] = {}
    # Kaniko takes the ignore file beside the Dockerfile in place of the repository's.
    paths = {DOCKERFILE: "Dockerfile", IGNORE: "Dockerfile.dockerignore", FETCHING: "Fetch"}
    if files := _files(spec).get("annotations"):
        items = [
            {"path": paths[key], "fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}} for key in files
        ]
        found[GENERATED] = {"name": "generated", "downwardAPI": {"items": items}}
    if spec.registry_secret:
        login = [{"key": ".dockerconfigjson", "path": "config.json"}]
        secret = {"secretName": spec.registry_secret, "items": login}
        found[LOGIN] = {"name": "registry", "secret": secret}
    if spec.ca:
        found[CA] = {"name": "ca", "configMap": {"name": spec.ca}}
    if spec.clones_apart:
        found[CONTEXT] = {"name": "context", "emptyDir": {}}
    return found


def _resources(spec: BuildSpec) -> Manifest:
    if spec.code_only:
        return {
            "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "1Gi"},
            "limits": {"memory": "1Gi", "ephemeral-storage": "5Gi"},
        }
    return {
        "requests": {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "20Gi"},
        "limits": {"memory": "8Gi", "ephemeral-storage": "60Gi"},
    }


def _arguments(spec: BuildSpec) -> list[str]:
    registry, _, path = spec.destination.partition("/")
    repository = path.rpartition(":")[0]
    dockerfile = spec.dockerfile if spec.own_dockerfile else f"{GENERATED}/Dockerfile"
    arguments = [
        *_context(spec),
        f"--dockerfile={dockerfile}",
        f"--destination={spec.destination}",
        "--snapshot-mode=redo",
        "--use-new-run",
        "--image-format=docker",
        "--digest-file=/dev/termination-log",
        "--push-retry=3",
        "--image-download-retry=3",
        "--image-fs-extract-retry=1",
    ]
    if spec.code_only:
        arguments.append("--reproducible")
    if spec.cache:
        arguments += [
            "--cache=true",
            # The destination's own repository: another one would be pushed to twice.
            f"--cache-repo={registry}/{repository}",
            "--cache-ttl=8760h",
            # "true" keeps whole layers in memory: 570 MB for a 106 MB layer, an OOM kill for PyTorch.
            "--compressed-caching=false",
        ]
    arguments += [f"--insecure-registry={host}" for host in spec.plain_http]
    return _escaped(arguments)


def _escaped(arguments: list[str]) -> list[str]:
    """Kubernetes replaces $(NAME) by the variable, such as the password in a branch named $(GIT_PASSWORD)."""
    return [argument.replace("$", "$$") for argument in arguments]


def _context(spec: BuildSpec) -> list[str]:
    if spec.alone:
        return [f"--context={GENERATED}"]
    return [f"--context={CONTEXT}"] if spec.clones_apart else _clone(spec)


def _clone(spec: BuildSpec) -> list[str]:
    where = spec.repo_url.partition("://")[2]
    submodules = ["--git=recurse-submodules=true"] if spec.submodules else []
    return [f"--context=git://{where}#{spec.ref}#{spec.commit}", "--git=single-branch=true", *submodules]


def _environment(spec: BuildSpec, *, with_login: bool) -> list[Manifest]:
    """Kaniko turns git:// into https:// unless told so. In the URL, a password would end in the image."""
    plain = spec.repo_url.startswith("http://")
    login = {"GIT_USERNAME": "username", "GIT_PASSWORD": "password"} if spec.git_secret and with_login else {}
    return [
        *([{"name": "GIT_PULL_METHOD", "value": "http"}] if plain else []),
        *([{"name": "SSL_CERT_DIR", "value": f"{PUBLIC_CA}:{CA}"}] if spec.ca else []),
        *(
            {"name": variable, "valueFrom": {"secretKeyRef": {"name": spec.git_secret, "key": key}}}
            for variable, key in login.items()
        ),
    ]
