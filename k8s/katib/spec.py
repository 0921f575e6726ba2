"""Katib experiments (v1beta1): the one we send, what its status and its trials say, and how they are ended.

The surprises behind this file are Katib's own: "Running" means that a Job exists, not that it runs; a
deleted trial or Job is made again; metrics come once, after the training ended; a finished experiment leaves
its running trials on their GPUs.
"""

import shlex
from dataclasses import dataclass, field

from k8s.objects import MANAGED_BY, SWEEP_LABEL, Manifest

MAIN = "main"
DELIVERY = "sweepbot/delivery"  # annotation: the command that asked for this experiment
USER = 1000
TENSORBOARD_DIR = "/var/log/katib/tfevent/"
EXPERIMENT_LABEL = "katib.kubeflow.org/experiment"
TRIAL_LABEL = "katib.kubeflow.org/trial"
# Seconds for the collector to find the training's process id before it is gone (kubeflow/katib#2181).
LINGER = 10
KUBERNETES_GRACE = 30  # seconds from SIGTERM to SIGKILL when a pod doesn't say
# Jobs that vanish before their metrics arrived are made again, so they stay for days.
KEEP_JOBS = 7 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Feasible:
    """One parameter as Katib takes it."""

    name: str
    type: str  # double | int | categorical
    space: Manifest  # min, max, step, distribution | list; every value a string


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A PersistentVolumeClaim in the namespace of the trials, and where it is mounted."""

    claim: str
    at: str
    read_only: bool


@dataclass(frozen=True, kw_only=True)
class PodShape:
    """What the pods of trials need on one cluster: the same for all of them."""

    runtime_class: str = ""
    nodes: dict[str, str] = field(default_factory=dict)  # labels of the nodes to run on
    tolerations: tuple[dict[str, str], ...] = ()
    cpu: str = ""  # requested
    memory: str = ""  # requested, and no more
    volumes: tuple[Volume, ...] = ()
    grace_seconds: int | None = None  # from SIGTERM to SIGKILL, unless a space says
    user: int = USER  # that the training runs as; 0: as the image says, root for most


@dataclass(frozen=True, kw_only=True)
class ExperimentSpec:
    name: str
    namespace: str
    sweep: str
    labels: dict[str, str]
    annotations: dict[str, str]
    metric: str
    maximize: bool
    target: float | None
    algorithm: str
    parallel: int
    max_trials: int
    max_failed: int
    trial_hours: float | None
    grace_seconds: int | None = None  # from SIGTERM to SIGKILL; None: as the shape says
    extendable: bool
    parameters: tuple[Feasible, ...]
    command: str  # shell text; the flags follow it
    image: str
    gpus: int
    env: dict[str, str]
    pull_secret: str | None = None
    shape: PodShape = PodShape()
    settings: dict[str, str] = field(default_factory=dict)  # of the algorithm


def experiment(spec: ExperimentSpec) -> Manifest:
    labels = {MANAGED_BY: "sweepbot", SWEEP_LABEL: spec.sweep, **spec.labels}
    objective: Manifest = {
        "type": "maximize" if spec.maximize else "minimize",
        "objectiveMetricName": spec.metric,
    }
    if spec.target is not None:
        objective["goal"] = spec.target
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {
            "name": spec.name,
            "namespace": spec.namespace,
            "labels": labels,
            "annotations": spec.annotations,
        },
        "spec": {
            "objective": objective,
            "algorithm": _algorithm(spec),
            "parallelTrialCount": spec.parallel,
            "maxTrialCount": spec.max_trials,
            "maxFailedTrialCount": spec.max_failed,
            # LongRunning keeps the suggestion service after the end: the price of adding trials later.
            "resumePolicy": "LongRunning" if spec.extendable else "Never",
            "parameters": [
                {"name": p.name, "parameterType": p.type, "feasibleSpace": p.space} for p in spec.parameters
            ],
            "metricsCollectorSpec": {
                "collector": {"kind": "TensorFlowEvent"},
                "source": {"fileSystemPath": {"kind": "Directory", "path": TENSORBOARD_DIR}},
            },
            "trialTemplate": _trial_template(spec),
        },
    }


def _algorithm(spec: ExperimentSpec) -> Manifest:
    settings = [{"name": name, "value": value} for name, value in spec.settings.items()]
    return {"algorithmName": spec.algorithm} | ({"algorithmSettings": settings} if settings else {})


def _trial_template(spec: ExperimentSpec) -> Manifest:
    meta = [{"name": "trialName", "reference": "${trialSpec.Name}"}]
    ours = {MANAGED_BY: "sweepbot", SWEEP_LABEL: spec.sweep}
    return {
        "retain": True,
        "primaryContainerName": MAIN,
        "trialParameters": [{"name": p.name, "reference": p.name} for p in spec.parameters] + meta,
        "trialSpec": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            # Katib copies the experiment's labels to trials and pods, but never to the Job.
            "metadata": {"labels": ours},
            "spec": {
                # The default of 6 would hide a crash for minutes behind retries.
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": KEEP_JOBS,
                # A drained node is nobody's failure: without this rule it would count as a failed trial.
                "podFailurePolicy": {
                    "rules": [
                        {
                            "action": "Ignore",
                            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                        }
                    ]
                },
                # Katib's webhook labels pods, too, unless it is away and its policy lets them pass.
                "template": {"metadata": {"labels": ours}, "spec": _trial_pod(spec)},
            },
        },
    }


def _trial_pod(spec: ExperimentSpec) -> Manifest:
    container: Manifest = {
        "name": MAIN,
        "image": spec.image,
        # Without a command Katib asks the registry for the image's entrypoint, over HTTPS, in its webhook.
        "command": ["sh", "-c"],
        "args": [shell(spec)],
        "env": [{"name": name, "value": value} for name, value in (_home(spec) | spec.env).items()],
        "securityContext": _security(spec),
        "volumeMounts": [
            {"name": "dshm", "mountPath": "/dev/shm"},  # noqa: S108  data loaders share memory here
            *(
                # Katib refuses a template with a false that Go leaves out.
                {"name": f"volume-{number}", "mountPath": volume.at}
                | ({"readOnly": True} if volume.read_only else {})
                for number, volume in enumerate(spec.shape.volumes)
            ),
        ],
    }
    if resources := _resources(spec):
        container["resources"] = resources
    grace = spec.grace_seconds or spec.shape.grace_seconds
    return {
        "restartPolicy": "Never",
        # Training needs no Kubernetes, and a Service named mlflow would set MLFLOW_PORT for it.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [
            {"name": "dshm", "emptyDir": {"medium": "Memory"}},
            *(
                {"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": volume.claim}}
                for number, volume in enumerate(spec.shape.volumes)
            ),
        ],
        # The pod's own, which begins on its node: a Job's deadline would count the wait for GPUs as well.
        **({"activeDeadlineSeconds": round(spec.trial_hours * 3600)} if spec.trial_hours else {}),
        **({"terminationGracePeriodSeconds": grace} if grace else {}),
        **({"runtimeClassName": spec.shape.runtime_class} if spec.shape.runtime_class else {}),
        **({"nodeSelector": spec.shape.nodes} if spec.shape.nodes else {}),
        **({"tolerations": list(spec.shape.tolerations)} if spec.shape.tolerations else {}),
        **({"imagePullSecrets": [{"name": spec.pull_secret}]} if spec.pull_secret else {}),
    }


def _security(spec: ExperimentSpec) -> Manifest:
    """Of the training alone: Katib's collector, in the same pod, is Katib's to run."""
    least = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    user = spec.shape.user
    return least | ({"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user} if user else {})


def _home(spec: ExperimentSpec) -> dict[str, str]:
    """A user that the image has never heard of has neither a name, for which PyTorch asks, nor a home."""
    return {"HOME": "/tmp", "USER": "trial"} if spec.shape.user else {}  # noqa: S108 - in its container


def _resources(spec: ExperimentSpec) -> Manifest:
    asked = {"cpu": spec.shape.cpu, "memory": spec.shape.memory}
    requests = {name: size for name, size in asked.items() if size}
    limits: Manifest = {"nvidia.com/gpu": spec.gpus} if spec.gpus else {}
    limits |= {"memory": spec.shape.memory} if spec.shape.memory else {}
    return {name: sizes for name, sizes in (("limits", limits), ("requests", requests)) if sizes}


def shell(spec: ExperimentSpec) -> str:
    """Return the training's one shell line.

    Katib joins `sh -c` words unquoted and appends `&& echo completed > marker`, so the whole is one word,
    the command runs in a subshell (an `exec` or `exit` in it would swallow the marker) and `&&` keeps its
    exit code. Kubernetes expands `$(NAME)` and `$$` in args: the user's `$` is doubled.

    At the end of a pod only this shell gets SIGTERM. A shell acts on a signal when its foreground command has
    ended, so the training runs in the background and the trap passes the signal on. The subshell becomes
    the command's last program (dash, bash, and BusyBox exec it), so that program gets it and no child of its
    own, such as a data loader. Exit code 143 even if the training then ends with 0: it did not complete.
    """
    flags = [f"'--{p.name}=${{trialParameters.{p.name}}}'" for p in spec.parameters]
    command = " ".join(
        [spec.command.replace("$", "$$"), *flags, f"--tensorboard_dir={shlex.quote(TENSORBOARD_DIR)}"]
    )
    stop = "trap 'kill -TERM $p; wait $p; exit 143' TERM"
    return f"( {command} ) & p=$!; {stop}; wait $p && trap - TERM && sleep {LINGER}"


def grace_of(manifest: Manifest) -> int:
    """Return the seconds that a trial's pod of this experiment may take to end."""
    pod = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    return int(pod.get("terminationGracePeriodSeconds", KUBERNETES_GRACE))


def with_image(manifest: Manifest, image: str) -> Manifest:
    """The same experiment with the image now known by digest."""
    spec = manifest["spec"]
    template = spec["trialTemplate"]
    trial = template["trialSpec"]
    pod = trial["spec"]["template"]["spec"]
    containers = [{**c, "image": image} if c["name"] == MAIN else c for c in pod["containers"]]
    job = {
        **trial["spec"],
        "template": {**trial["spec"]["template"], "spec": {**pod, "containers": containers}},
    }
    return {**manifest, "spec": {**spec, "trialTemplate": {**template, "trialSpec": {**trial, "spec": job}}}}
