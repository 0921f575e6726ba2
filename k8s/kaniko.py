"""Build Jobs for Kaniko: its flags, who clones what, credentials, proxies, CAs, CPU, memory, disk, and
deadline, and how long an ended Job stays; read the digest that it pushed.

The flags are those of the maintained fork, osscontainertools/kaniko v1.28.3.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from k8s.objects import BUILD_LABEL, MANAGED_BY, WITHOUT_PROXY, Manifest, label_value
from k8s.pods import read_pod

BUILD_CONTAINER = "kaniko"
FETCH_CONTAINER = "fetch"  # the init container: only it has the git credentials if the build runs user code
REGISTRY_CONFIG = "/kaniko/.docker"  # config.json with the registry's credentials
CONTEXT = "/kaniko/buildcontext"  # Kaniko clones into it
FETCHING = "sweepbot/fetch"  # annotation: the Dockerfile of the init container, which only clones
DOCKERFILE_KEY, IGNORE_KEY = "sweepbot/dockerfile", "sweepbot/dockerignore"  # annotations of the pod
DIGEST_PATTERN = re.compile("sha256:[0-9a-f]{64}")
GENERATED = "/sweepbot"  # mount path of these annotations
# Where pip, uv, and Conda look for settings of the whole system, whoever runs them: Conda in each .yaml.
NETWORK = ("/etc/xdg/pip", "/etc/xdg/uv", "/etc/conda/condarc.d")
# A RUN gets them without an ARG, and an image doesn't have them. Some programs read only one form.
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
AZURE_IDENTITY = {"azure.workload.identity/use": "true"}  # label of a pod; other clouds ignore it
CA, PUBLIC_CA = "/kaniko/ca", "/kaniko/ssl/certs"  # the second is the executor's own


@dataclass(frozen=True, kw_only=True)
class BuildSpec:
    name: str
    namespace: str
    repo_url: str
    ref: str  # refs/heads/main: Kaniko clones this, then checks the commit out
    commit: str
    submodules: bool = False
    dockerfile: str  # text, or a path in the repository if own_dockerfile
    own_dockerfile: bool = False
    ignore: str = ""  # .dockerignore for a generated Dockerfile
    destination: str  # registry/repository:tag, as Kaniko pushes
    alone: bool = False  # the Dockerfile needs no files of the repository
    code_only: bool = False  # FROM scratch and COPY: reproducible, and takes a second
    cache: bool = False  # cache the layer of each RUN in the destination's repository
    executor: str  # Kaniko's own image
    git_secret: str | None = None  # with username and password
    registry_secret: str | None = None  # of type kubernetes.io/dockerconfigjson
    service_account: str | None = None  # with a cloud's identity, by which Kaniko's own helpers log in
    network_secret: str | None = None  # with proxies, and settings of pip and uv
    ca: str | None = None  # ConfigMap with a company's CA certificates, for git hosts and registries
    plain_http: tuple[str, ...] = ()  # registries without TLS
    deadline: int = 1800  # seconds

    @property
    def clones_apart(self) -> bool:
        """Return whether an init container clones: a RUN can read its container's credentials."""
        return bool(self.git_secret) and not (self.alone or self.code_only)


def build_job(spec: BuildSpec) -> Manifest:
    """Return the Job that builds spec.commit and pushes it to spec.destination."""
    labels = {MANAGED_BY: "sweepbot", BUILD_LABEL: spec.name, "sweepbot/commit": label_value(spec.commit)}
    of_pod = labels | WITHOUT_PROXY | (AZURE_IDENTITY if spec.service_account else {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": spec.name, "namespace": spec.namespace, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": spec.deadline,
            "ttlSecondsAfterFinished": 3600,
            "template": {"metadata": {"labels": of_pod, **_files(spec)}, "spec": _pod(spec)},
        },
    }


def pushed_digest(job: Manifest, pods: Iterable[Manifest], expected: str) -> str | None:
    """Return the digest that this Job pushed as `expected`, from the termination message of its pod.

    None without exit code 0, because Kaniko writes the digest before it pushes.
    """
    if destination(job) != expected:
        return None
    for pod in pods:
        owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
        code, _, message = read_pod(pod, BUILD_CONTAINER).exit or (None, "", "")
        if job["metadata"]["uid"] in owners and code == 0 and DIGEST_PATTERN.fullmatch(message):
            return message
    return None


def destination(job: Manifest) -> str:
    """Return registry/repository:tag that Kaniko pushes; "" for other Jobs."""
    containers = job["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = [argument for each in containers for argument in each.get("args") or ()]
    flag = "--destination="
    return next((a.removeprefix(flag) for a in arguments if a.startswith(flag)), "")


def with_base(job: Manifest, tag: str, digest: str) -> Manifest:
    """Return the Job with the base of its generated Dockerfile pinned by digest: tags can move."""
    template = job["spec"]["template"]
    dockerfile = template["metadata"]["annotations"][DOCKERFILE_KEY].replace(f":{tag}\n", f"@{digest}\n")
    annotations = {**template["metadata"]["annotations"], DOCKERFILE_KEY: dockerfile}
    metadata = {**template["metadata"], "annotations": annotations}
    return {**job, "spec": {**job["spec"], "template": {**template, "metadata": metadata}}}


def _files(spec: BuildSpec) -> Manifest:
    """Return the generated files as annotations of the pod, which mounts them; no ConfigMap is needed."""
    generated = {} if spec.own_dockerfile else {DOCKERFILE_KEY: spec.dockerfile, IGNORE_KEY: spec.ignore}
    files = generated | ({FETCHING: "FROM scratch\n"} if spec.clones_apart else {})
    return {"annotations": files} if files else {}


def _pod(spec: BuildSpec) -> Manifest:
    volumes = _volumes(spec)
    build = _container(spec, BUILD_CONTAINER, _arguments(spec), volumes)
    fetch = []
    if spec.clones_apart:
        arguments = _escaped([*_clone(spec), f"--dockerfile={GENERATED}/Fetch", "--no-push"])
        others = {path: volume for path, volume in volumes.items() if path != REGISTRY_CONFIG}
        fetch = [_container(spec, FETCH_CONTAINER, arguments, others)]
    return {
        "restartPolicy": "Never",
        **({"serviceAccountName": spec.service_account} if spec.service_account else {}),
        # A cloud's identity is another token, which its webhook or its metadata server adds.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **({"initContainers": fetch} if fetch else {}),
        "containers": [build],
        "volumes": list({volume["name"]: volume for volume in volumes.values()}.values()),
    }


def _container(spec: BuildSpec, name: str, arguments: list[str], volumes: dict[str, Manifest]) -> Manifest:
    return {
        "name": name,
        "image": spec.executor,
        "args": arguments,
        "env": _environment(spec, with_credentials=name == FETCH_CONTAINER or not spec.clones_apart),
        # Unpacking layers and RUN need root and exactly these five capabilities.
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
    """Return the volumes by mount path."""
    found: dict[str, Manifest] = {}
    # Kaniko prefers the ignore file next to the Dockerfile over the repository's.
    paths = {DOCKERFILE_KEY: "Dockerfile", IGNORE_KEY: "Dockerfile.dockerignore", FETCHING: "Fetch"}
    if files := _files(spec).get("annotations"):
        items = [
            {"path": paths[key], "fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}} for key in files
        ]
        found[GENERATED] = {"name": "generated", "downwardAPI": {"items": items}}
    if spec.registry_secret:
        config = [{"key": ".dockerconfigjson", "path": "config.json"}]
        secret = {"secretName": spec.registry_secret, "items": config}
        found[REGISTRY_CONFIG] = {"name": "registry", "secret": secret}
    if spec.network_secret and not spec.code_only:
        # Kaniko leaves out of layers what is mounted.
        network = {"name": "network", "secret": {"secretName": spec.network_secret}}
        found |= dict.fromkeys(NETWORK, network)
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
            # In the destination's own repository: layers would be pushed twice to another one.
            f"--cache-repo={registry}/{repository}",
            "--cache-ttl=8760h",
            # "true" holds whole layers in memory: 570 MB for a layer of 106 MB; PyTorch is OOM-killed.
            "--compressed-caching=false",
        ]
    if spec.network_secret and not spec.code_only:
        arguments += [f"--build-arg={name}" for name in PROXIES]  # with the value of the environment
    arguments += [f"--insecure-registry={host}" for host in spec.plain_http]
    return _escaped(arguments)


def _escaped(arguments: list[str]) -> list[str]:
    """Escape $(NAME), which Kubernetes expands: a branch could be named $(GIT_PASSWORD)."""
    return [argument.replace("$", "$$") for argument in arguments]


def _context(spec: BuildSpec) -> list[str]:
    if spec.alone:
        return [f"--context={GENERATED}"]
    return [f"--context={CONTEXT}"] if spec.clones_apart else _clone(spec)


def _clone(spec: BuildSpec) -> list[str]:
    where = spec.repo_url.partition("://")[2]
    submodules = ["--git=recurse-submodules=true"] if spec.submodules else []
    return [f"--context=git://{where}#{spec.ref}#{spec.commit}", "--git=single-branch=true", *submodules]


def _environment(spec: BuildSpec, *, with_credentials: bool) -> list[Manifest]:
    """Return the variables. A password in the URL would end up in the image."""
    plain = spec.repo_url.startswith("http://")  # Kaniko uses https:// by default
    credentials = (
        {"GIT_USERNAME": "username", "GIT_PASSWORD": "password"}
        if spec.git_secret and with_credentials
        else {}
    )
    proxies = PROXIES if spec.network_secret else ()
    return [
        *([{"name": "GIT_PULL_METHOD", "value": "http"}] if plain else []),
        *(_variable(name, spec.network_secret, name.upper(), optional=True) for name in proxies),
        *([{"name": "SSL_CERT_DIR", "value": f"{PUBLIC_CA}:{CA}"}] if spec.ca else []),
        *(_variable(name, spec.git_secret, key) for name, key in credentials.items()),
    ]


def _variable(name: str, secret: str | None, key: str, **more: bool) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, **more}}}
