"""Katib experiments (v1beta1): the one we send, what its status and its trials say, and how they are ended.

The surprises behind this file are Katib's own: "Running" means that a Job exists, not that it runs; a
deleted trial or Job is made again; metrics come once, after the training ended; a finished experiment leaves
its running trials on their GPUs.
"""

import math
import shlex
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from k8s.objects import MANAGED_BY, SWEEP_LABEL, Manifest, Ref, timestamp, true_conditions

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
    hours: float | None
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


class ExperimentState(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    state: ExperimentState
    raw: Manifest
    reason: str = ""
    message: str = ""

    @property
    def max_trials(self) -> int:
        return int(self.raw["spec"]["maxTrialCount"])


class TrialState(StrEnum):
    LIVE = "live"  # created, queued or running: only its pod knows
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NO_METRICS = "no metrics"  # ended well without the objective's metric; Katib counts a failure
    KILLED = "killed"


@dataclass(frozen=True, kw_only=True)
class Trial:
    name: str
    state: TrialState
    parameters: dict[str, str]
    value: float | None  # of the objective, if finite
    raw: Manifest


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
        **({"activeDeadlineSeconds": round(spec.hours * 3600)} if spec.hours else {}),
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


def read_experiment(obj: Manifest | None) -> Experiment | None:
    """Finished is Succeeded or Failed being True; completionTime and Restarting stay from earlier ends."""
    if obj is None:
        return None
    true_now = true_conditions(obj)
    for type_, state in (("Succeeded", ExperimentState.SUCCEEDED), ("Failed", ExperimentState.FAILED)):
        if condition := true_now.get(type_):
            return Experiment(
                state=state,
                raw=obj,
                reason=condition.get("reason", ""),
                message=condition.get("message", ""),
            )
    return Experiment(state=ExperimentState.RUNNING, raw=obj)


def read_trial(obj: Manifest, metric: str, *, maximize: bool) -> Trial:
    assignments = obj.get("spec", {}).get("parameterAssignments") or []
    return Trial(
        name=obj["metadata"]["name"],
        state=_trial_state(obj),
        parameters={a["name"]: str(a["value"]) for a in assignments},
        value=_value(obj, metric, maximize=maximize),
        raw=obj,
    )


def _trial_state(obj: Manifest) -> TrialState:
    true_now = true_conditions(obj)
    if "Killed" in true_now:
        return TrialState.KILLED
    if "Succeeded" in true_now or "EarlyStopped" in true_now:
        return TrialState.SUCCEEDED
    if "Failed" in true_now:
        return TrialState.FAILED
    if "MetricsUnavailable" in true_now:
        return TrialState.NO_METRICS
    return TrialState.LIVE


def _value(obj: Manifest, metric: str, *, maximize: bool) -> float | None:
    """Katib lets NaN through and then keeps it as the best for ever, so only finite values count here."""
    observation = obj.get("status", {}).get("observation") or {}
    for entry in observation.get("metrics") or []:
        if entry["name"] == metric:
            return _finite(entry.get("max" if maximize else "min", ""))
    return None


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:  # Katib's word for nothing is "unavailable"
        return None
    return value if math.isfinite(value) else None


def killed(trial: Manifest, message: str, now: datetime) -> Manifest:
    """The status patch that ends one trial and keeps its history; its Job is to be deleted after this.

    Killed goes FIRST: Katib tells the suggestion service only the last condition, and goptuna (sobol, cmaes)
    never answers again after a trial that ends with Killed.
    """
    return _ended(trial, "Killed", "TrialKilled", message, now, first=True)


DRAINED = "SweepbotDrained"
GOAL_REACHED = "ExperimentGoalReached"
MAX_TRIALS_REACHED = "ExperimentMaxTrialsReached"


def ended(experiment: Manifest, message: str, now: datetime) -> Manifest:
    """The status patch after which Katib starts no more trials. Running ones run on: `killed` ends those."""
    return _closed(experiment, "Failed", "SweepbotStopped", message, now)


def drained(experiment: Manifest, message: str, now: datetime) -> Manifest:
    """As `ended`, for an experiment that did well; Katib goes on counting what still runs."""
    return _closed(experiment, "Succeeded", DRAINED, message, now)


def more_trials(total: int) -> Manifest:
    """The patch that extends an experiment. Katib takes it from one that reached its number of trials, and is
    LongRunning. It takes a moment until the old Succeeded condition goes.
    """
    return {"spec": {"maxTrialCount": total}}


def _closed(experiment: Manifest, type_: str, reason: str, message: str, now: datetime) -> Manifest:
    patch = _ended(experiment, type_, reason, message, now, first=False)
    patch["status"]["completionTime"] = timestamp(now)
    return patch


def _ended(obj: Manifest, type_: str, reason: str, message: str, now: datetime, *, first: bool) -> Manifest:
    at = timestamp(now)
    times = {"lastTransitionTime": at, "lastUpdateTime": at}
    condition = {"type": type_, "status": "True", "reason": reason, "message": message, **times}
    # A merge patch replaces lists whole: all conditions are sent, with a resourceVersion, refused if stale.
    others = [
        {**c, "status": "False", **times} if c["type"] == "Running" else c
        for c in obj.get("status", {}).get("conditions") or []
    ]
    conditions = [condition, *others] if first else [*others, condition]
    version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
    return {"metadata": version, "status": {"conditions": conditions}}


def ui_link(base: str, experiment: Ref) -> str:
    """The experiment's page in Katib's UI (its app-routing.module.ts)."""
    return f"{base}/katib/experiment/{experiment.namespace}/{experiment.name}"
