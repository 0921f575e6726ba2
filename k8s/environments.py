"""Build the objects of a research environment (Jupyter, code-server): a StatefulSet with 0 or 1 pods, its
security, /dev/shm, readiness, the home's claim, Secret, Service, and Ingress.

A StatefulSet, because a bare pod is lost when its node is drained, and the two pods of a Deployment's update
would both mount the home. `Parallel`, because OrderedReady never replaces a pod that can't become ready
(kubernetes#67250). The home has no owner reference: nothing but its own deletion removes it.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from k8s.katib.pod_shape import PodShape
from k8s.katib.trial_pod import VISIBLE_GPUS, classes, placement
from k8s.objects import (
    ENVIRONMENT_LABEL,
    HOME_LABEL,
    MANAGED_BY,
    OWNER_LABEL,
    TEAM_LABEL,
    Manifest,
    Ref,
)
from k8s.quantities import amount

CONTAINER = "main"
RECORD = "sweepbot/environment"  # annotation of the StatefulSet: JSON
LOGIN = "login"  # key in the Secret
UID = 1000  # of Jupyter's and code-server's images
SHM = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 - in the container
PORT = 80  # of the Service, whatever listens in the pod: the next start can have another server


@dataclass(frozen=True, kw_only=True)
class Server:
    """What listens in an environment's container."""

    port: int
    home: str
    group: int  # of the files in the home
    login: str  # environment variable
    ready: str  # path below the base URL that answers without a login


JUPYTER = Server(port=8888, home="/home/jovyan", group=100, login="JUPYTER_TOKEN", ready="api")
CODE_SERVER = Server(port=8080, home="/home/coder", group=1000, login="PASSWORD", ready="healthz")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What an environment and a service have in common."""

    kind: ClassVar[str]  # of the object that owns the others
    name: str
    namespace: str
    owner: str  # Slack user id
    team: str = ""
    image: str
    cpu: str
    memory: str
    gpus: int  # of one pod
    path: str = "/"  # of its URL; starts and ends with a slash
    host: str = ""  # "": no Ingress
    ingress_class: str = ""
    ingress_annotations: dict[str, str] = field(default_factory=dict)
    shape: PodShape = field(default_factory=PodShape)  # where it runs, and what its GPUs are


@dataclass(frozen=True, kw_only=True)
class EnvironmentSpec(Workload):
    kind = "StatefulSet"
    server: Server
    command: tuple[str, ...] = ()
    home: str


def ref(namespace: str, name: str, kind: str = "StatefulSet") -> Ref:
    """Return the address of one of an environment's objects; its pod is `env-NAME-0`."""
    return Ref(kind, namespace, f"env-{name}")


def home_ref(namespace: str, home: str) -> Ref:
    return Ref("PersistentVolumeClaim", namespace, f"home-{home}")


def stateful_set(spec: EnvironmentSpec, record: str) -> Manifest:
    """Return it without a pod: `replicas` is 0 until everything else exists."""
    return owned("apps/v1", ref(spec.namespace, spec.name), spec, annotations={RECORD: record}) | {
        "spec": {
            "replicas": 0,
            "serviceName": f"env-{spec.name}",
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": {ENVIRONMENT_LABEL: spec.name}},
            "template": template(spec),
        }
    }


def template(spec: EnvironmentSpec) -> Manifest:
    """Return the pod's template; it satisfies Pod Security "restricted"."""
    home = {"name": "home", "persistentVolumeClaim": {"claimName": f"home-{spec.home}"}}
    return pod_template(spec, _container(spec), [home], group=spec.server.group)


def pod_template(spec: Workload, container: Manifest, volumes: list[Manifest], *, group: int) -> Manifest:
    """Return a template that satisfies Pod Security "restricted", with this container.

    Args:
        group: of the files in the volumes.
    """
    security = {
        "runAsNonRoot": True,
        "runAsUser": UID,
        "fsGroup": group,
        # Otherwise the kubelet changes every file of a large home at each start, which takes minutes.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _quarter(spec.memory)}}
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": security,
        "containers": [_base(spec) | container],
        "volumes": [*volumes, shm],
    }
    pod |= placement(spec.shape, spec.gpus) | classes(spec.shape)
    return {"metadata": {"labels": labels(spec)}, "spec": pod}


def _base(spec: Workload) -> Manifest:
    """Return what every container has."""
    requests = {"cpu": spec.cpu, "memory": spec.memory}
    limits = {"memory": spec.memory} | ({spec.shape.resource: str(spec.gpus)} if spec.gpus else {})
    return {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": requests | limits, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def readiness(probe: Manifest) -> Manifest:
    return probe | {"periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 15}


def claim(
    namespace: str,
    home: str,
    owner: str,
    size: str,
    *,
    storage_class: str = "",
    shared: bool = False,
) -> Manifest:
    """Return the claim of a home. It has no owner reference."""
    where = home_ref(namespace, home)
    labels = {MANAGED_BY: "sweepbot", HOME_LABEL: home, OWNER_LABEL: owner}
    spec: Manifest = {
        "accessModes": ["ReadWriteMany" if shared else "ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    return {
        "apiVersion": "v1",
        "kind": where.kind,
        "metadata": {"name": where.name, "namespace": namespace, "labels": labels},
        "spec": spec | ({"storageClassName": storage_class} if storage_class else {}),
    }


def secret(spec: EnvironmentSpec, uid: str, login: str) -> Manifest:
    where = ref(spec.namespace, spec.name, "Secret")
    return owned("v1", where, spec, uid=uid) | {"stringData": {LOGIN: login}}


def service(spec: Workload, uid: str, port: int = PORT) -> Manifest:
    """Return a Service with this port, whatever port the container has."""
    ports = [{"name": "http", "port": port, "targetPort": "http"}]
    body = {"selector": {ENVIRONMENT_LABEL: spec.name}, "ports": ports}
    return owned("v1", ref(spec.namespace, spec.name, "Service"), spec, uid=uid) | {"spec": body}


def ingress(spec: Workload, uid: str, port: int = PORT) -> Manifest:
    backend = {"service": {"name": f"env-{spec.name}", "port": {"number": port}}}
    path = {"path": spec.path, "pathType": "Prefix", "backend": backend}
    body: Manifest = {"rules": [{"host": spec.host, "http": {"paths": [path]}}]}
    body |= {"ingressClassName": spec.ingress_class} if spec.ingress_class else {}
    where = ref(spec.namespace, spec.name, "Ingress")
    made = owned("networking.k8s.io/v1", where, spec, uid=uid, annotations=spec.ingress_annotations)
    return made | {"spec": body}


def owned(
    version: str,
    where: Ref,
    spec: Workload,
    *,
    uid: str = "",
    annotations: dict[str, str] | None = None,
) -> Manifest:
    """Return an object without its content, owned by the workload with this uid."""
    meta: Manifest = {"name": where.name, "namespace": where.namespace, "labels": labels(spec)}
    meta |= {"annotations": annotations} if annotations else {}
    if uid:
        owner = {"apiVersion": "apps/v1", "kind": spec.kind, "name": f"env-{spec.name}", "uid": uid}
        meta["ownerReferences"] = [owner | {"controller": True}]
    return {"apiVersion": version, "kind": where.kind, "metadata": meta}


def labels(spec: Workload) -> dict[str, str]:
    team = {TEAM_LABEL: spec.team} if spec.team else {}
    return {MANAGED_BY: "sweepbot", ENVIRONMENT_LABEL: spec.name, OWNER_LABEL: spec.owner} | team


def _container(spec: EnvironmentSpec) -> Manifest:
    server = spec.server
    probe = {"httpGet": {"path": f"{spec.path}{server.ready}", "port": server.port}}
    return {
        **_command(spec),
        "workingDir": server.home,  # what Jupyter shows; files elsewhere would be lost at a stop
        "env": _variables(spec),
        "ports": [{"name": "http", "containerPort": server.port}],
        "readinessProbe": readiness(probe),
        "volumeMounts": [{"name": "home", "mountPath": server.home}, SHM],
    }


def _command(spec: EnvironmentSpec) -> Manifest:
    """Return command and args of an image that doesn't read NOTEBOOK_ARGS."""
    if not spec.command:
        return {}
    if spec.server is CODE_SERVER:
        return {"command": list(spec.command), "args": [f"--bind-addr=0.0.0.0:{CODE_SERVER.port}"]}
    args = [f"--ServerApp.base_url={spec.path}", "--ServerApp.ip=0.0.0.0"]
    return {"command": list(spec.command), "args": [*args, f"--ServerApp.port={JUPYTER.port}"]}


def _variables(spec: EnvironmentSpec) -> list[Manifest]:
    key = {"name": f"env-{spec.name}", "key": LOGIN}
    found: list[Manifest] = [
        {"name": spec.server.login, "valueFrom": {"secretKeyRef": key}},
        {"name": "HOME", "value": spec.server.home},
    ]
    if spec.server is JUPYTER and not spec.command:
        found.append({"name": "NOTEBOOK_ARGS", "value": f"--ServerApp.base_url={spec.path}"})
    return [*found, *no_gpus(spec)]


def no_gpus(spec: Workload) -> list[Manifest]:
    """Return a variable without which CUDA images get all GPUs where NVIDIA's runtime is the default."""
    return [] if spec.gpus else [{"name": VISIBLE_GPUS, "value": "void"}]


def _quarter(memory: str) -> str:
    """Return a quarter of a quantity of memory, in bytes: /dev/shm counts toward the container's limit."""
    return str(int(amount(memory) / 4))
