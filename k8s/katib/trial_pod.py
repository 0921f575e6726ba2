"""Build the pod of a trial: its container, CPU, memory, the variables that Sweepbot sets, Secrets, volumes,
user, and time limit, and the machines that it can run on, or prefers.
"""

from pathlib import PurePosixPath

from k8s.katib import reader
from k8s.katib.device_claims import CLAIM, pod_fields
from k8s.katib.multi_node import SERVICE, patience, rendezvous
from k8s.katib.pod_shape import PodShape, SecretVariables
from k8s.katib.spec import ExperimentSpec
from k8s.katib.training import TENSORBOARD_DIR, TRIAL_NAME, shell
from k8s.objects import RESTRICTED, SWEEP_LABEL, Manifest
from k8s.quantities import canonical
from k8s.trial_kinds import JOB, PYTORCH_JOB

VISIBLE_GPUS = "NVIDIA_VISIBLE_DEVICES"
MAX_WEIGHT = 100  # of a preference; Kubernetes accepts 1 to 100


def requests(shape: PodShape, gpus: int) -> dict[str, str]:
    """Return what a trial requests of its machine, as quantities by resource."""
    sizes = {"cpu": shape.cpu, "memory": shape.memory, shape.resource: str(gpus) if gpus else ""}
    return {name: size for name, size in (sizes | shape.resources).items() if size}


def trial_pod(spec: ExperimentSpec) -> Manifest:
    """Return the pod's spec. The training operators add what connects the nodes; of v1, a restartPolicy."""
    grace = spec.grace_seconds or spec.shape.grace_seconds
    return {
        **({} if spec.trial_kind is PYTORCH_JOB else {"restartPolicy": "Never"}),
        # Training doesn't use Kubernetes, and a Service named mlflow would set MLFLOW_PORT.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **_reader(spec),
        "containers": [_container(spec)],
        "volumes": [
            {"name": "dshm", "emptyDir": {"medium": "Memory"} | _limit(spec.shape)},
            *(
                {"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": volume.claim}}
                for number, volume in enumerate(spec.shape.volumes)
            ),
            *_event_volumes(spec),
        ],
        **({"subdomain": SERVICE} if _is_indexed(spec) else {}),
        # The pod's deadline starts on its node: a Job's would include the wait for GPUs.
        **({"activeDeadlineSeconds": round(spec.trial_hours * 3600)} if spec.trial_hours else {}),
        **({"terminationGracePeriodSeconds": grace} if grace else {}),
        **placement(spec.shape, spec.gpus),
        **classes(spec.shape),
        **pod_fields(spec.shape.resource, spec.gpus),
        **({"imagePullSecrets": [{"name": spec.pull_secret}]} if spec.pull_secret else {}),
    }


def _is_indexed(spec: ExperimentSpec) -> bool:
    return spec.nodes > 1 and spec.trial_kind is JOB


def _container(spec: ExperimentSpec) -> Manifest:
    container: Manifest = {
        "name": spec.trial_kind.container,
        "image": spec.image,
        # Without a command, Katib's webhook would fetch the image's entrypoint from the registry over HTTPS.
        "command": ["sh", "-c"],
        "args": [_shell(spec)],
        "env": [
            *(
                {"name": name, "value": value}
                for name, value in (_home(spec) | patience(spec.nodes) | spec.env).items()
            ),
            *_secret_variables(spec),
            *_no_gpus(spec),
            *(rendezvous(TRIAL_NAME, spec.nodes, spec.processes) if _is_indexed(spec) else ()),
        ],
        "securityContext": _security(spec),
        "volumeMounts": [
            {"name": "dshm", "mountPath": "/dev/shm"},  # noqa: S108 - shared memory of data loaders
            *(
                # Katib rejects a template with a false that Go leaves out.
                {"name": f"volume-{number}", "mountPath": volume.at}
                | ({"readOnly": True} if volume.read_only else {})
                for number, volume in enumerate(spec.shape.volumes)
            ),
            *_event_mounts(spec),
        ],
    }
    if resources := _resources(spec):
        container["resources"] = resources
    return container


def _shell(spec: ExperimentSpec) -> str:
    several = spec.nodes > 1
    return shell(spec.command, spec.arguments, spec.collector, spec.directory, several=several)


def _reader(spec: ExperimentSpec) -> Manifest:
    found = spec.collector.reader
    if found is None:
        return {}
    metrics, grace = (spec.metric, *spec.additional), spec.grace_seconds or spec.shape.grace_seconds
    folder, security = str(PurePosixPath(TENSORBOARD_DIR)), _security(spec)
    return {
        "initContainers": [
            reader.sidecar(found, folder, metrics, spec.trial_kind, grace=grace, security=security)
        ]
    }


def _event_volumes(spec: ExperimentSpec) -> list[Manifest]:
    if spec.collector.reader:
        return reader.volumes()
    return [{"name": mount["name"], "emptyDir": {}} for mount in _event_mounts(spec)]


def _event_mounts(spec: ExperimentSpec) -> list[Manifest]:
    """Return the mount of TensorBoard's directory for the reader.

    For Katib's collector, return a writable parent, which Katib mounts for the first worker only.
    """
    if spec.collector.reader:
        return [{"name": reader.EVENTS, "mountPath": str(PurePosixPath(TENSORBOARD_DIR))}]
    if spec.nodes == 1 or spec.collector.kind != "TensorFlowEvent":
        return []
    return [{"name": "events", "mountPath": str(PurePosixPath(spec.collector.path).parent)}]


def _security(spec: ExperimentSpec) -> Manifest:
    """Return the training container's security context; Katib sets that of its collector in the same pod."""
    user = spec.shape.user
    return RESTRICTED | ({"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user} if user else {})


def _home(spec: ExperimentSpec) -> dict[str, str]:
    """Return name and home of a user that isn't in the image; PyTorch looks up the name."""
    return {"HOME": "/tmp", "USER": "trial"} if spec.shape.user else {}  # noqa: S108 - in its container


def _secret_variables(spec: ExperimentSpec) -> list[Manifest]:
    """Return the variables from Secrets, by key: with `envFrom` a Secret could set PATH."""
    return [
        {"name": key, "valueFrom": {"secretKeyRef": _source(secret) | {"key": key}}}
        for secret in spec.secrets
        for key in secret.keys
    ]


def _no_gpus(spec: ExperimentSpec) -> list[Manifest]:
    """Return a variable without which CUDA images get all GPUs where NVIDIA's runtime is the default."""
    has_gpus = spec.gpus or any(name.startswith("nvidia.com/") for name in spec.shape.resources)
    return [] if has_gpus else [{"name": VISIBLE_GPUS, "value": "void"}]


def _source(secret: SecretVariables) -> Manifest:
    # Katib rejects a template with a false that Go leaves out.
    return {"name": secret.name} | ({"optional": True} if secret.optional else {})


def _limit(shape: PodShape) -> Manifest:
    return {"sizeLimit": canonical(shape.shared_memory)} if shape.shared_memory else {}


def _resources(spec: ExperimentSpec) -> Manifest:
    shape, claims = spec.shape, pod_fields(spec.shape.resource, spec.gpus)
    found = requests(shape, 0 if claims else spec.gpus)
    # A CPU limit throttles; without the static policy, only requests are set.
    limits: Manifest = {name: size for name, size in found.items() if name != "cpu" or shape.whole_cpus}
    limits |= {shape.resource: spec.gpus} if spec.gpus and not claims else {}
    own = {name: size for name, size in found.items() if name in {"cpu", "memory"}}
    used = [{"name": CLAIM}] if claims else []
    return {name: each for name, each in (("limits", limits), ("requests", own), ("claims", used)) if each}


def placement(shape: PodShape, gpus: int) -> Manifest:
    """Return the part of the pod's spec that decides on which machines it can run."""
    affinity = _affinity(shape, gpus)
    return {
        **({"nodeSelector": shape.nodes} if shape.nodes else {}),
        **({"affinity": affinity} if affinity else {}),
        **({"tolerations": list(shape.tolerations)} if shape.tolerations else {}),
    }


def classes(shape: PodShape) -> Manifest:
    """Return the part of the pod's spec that names its classes and its scheduler."""
    found = {
        "runtimeClassName": shape.runtime_class,
        "schedulerName": shape.scheduler,
        "priorityClassName": shape.priority_class,
    }
    return {key: name for key, name in found.items() if name}


def _affinity(shape: PodShape, gpus: int) -> Manifest:
    rules: Manifest = {}
    if shape.node_choices:
        terms = [{"key": key, "operator": "In", "values": [*v]} for key, v in shape.node_choices.items()]
        required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        rules["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    if shape.pack and gpus:
        rules["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [_in_use()]}
    return rules


def _in_use() -> Manifest:
    """Prefer machines with other trials, so that whole ones stay free.

    The scheduler spreads pods by default (NodeResourcesFit, LeastAllocated); only its own configuration can
    change that, and a pod's preference changes it for trials alone. A trial that needs a whole machine fits
    on no used one, so it needs no exception.
    """
    trials = {"matchExpressions": [{"key": SWEEP_LABEL, "operator": "Exists"}]}
    term = {"labelSelector": trials, "namespaceSelector": {}, "topologyKey": "kubernetes.io/hostname"}
    return {"weight": MAX_WEIGHT, "podAffinityTerm": term}
