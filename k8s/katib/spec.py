"""Build the Katib Experiment (v1beta1) of a sweep.

Katib's behavior that shapes it: "Running" means that a Job exists, not that it runs; a deleted trial or Job
is created again; metrics are reported once, after the training finished; a finished experiment leaves its
running trials on their GPUs.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

from k8s.katib import pytorch_job
from k8s.katib.multi_node import MULTI_LABEL, job_fields
from k8s.katib.training import Collector, metrics_collector_spec
from k8s.katib.trial_pod import PodShape, SecretVariables, trial_pod
from k8s.objects import MANAGED_BY, SWEEP_LABEL, Manifest
from k8s.trial_kinds import INDEX_LABEL, JOB, PYTORCH_JOB, TrialKind, pod_templates

REQUEST_ID = "sweepbot/delivery"  # annotation: id of the request that created this experiment
EXPERIMENT_LABEL = "katib.kubeflow.org/experiment"
TRIAL_LABEL = "katib.kubeflow.org/trial"
KUBERNETES_GRACE = 30  # seconds from SIGTERM to SIGKILL if the pod doesn't set it
# Katib creates a Job again if it is deleted before its metrics arrived, so Jobs are kept for days.
JOB_TTL = 7 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Feasible:
    """One parameter in Katib's types."""

    name: str
    type: str  # double | int | categorical
    space: Manifest  # min, max, step, distribution | list; every value a string


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
    grace_seconds: int | None = None  # from SIGTERM to SIGKILL; None: the shape's
    parameters: tuple[Feasible, ...]
    command: str  # shell text, with `$` doubled
    arguments: str = ""  # shell text that follows it, with Katib's placeholders
    collector: Collector = field(default_factory=Collector)
    additional: tuple[str, ...] = ()  # metrics
    strategies: dict[str, str] = field(default_factory=dict)  # min, max, or latest, by metric
    early_stopping: dict[str, str] | None = None  # settings of medianstop; None: off
    image: str
    gpus: int  # of each pod
    nodes: int = 1  # pods of a trial, each on its own machine
    env: dict[str, str]
    secrets: tuple[SecretVariables, ...] = ()
    directory: str = ""  # absolute path, created before the training starts; may contain the trial's name
    pull_secret: str | None = None
    shape: PodShape = field(default_factory=PodShape)
    job_labels: dict[str, str] = field(default_factory=dict)  # of the trials' Jobs only, such as Kueue's
    settings: dict[str, str] = field(default_factory=dict)  # of the algorithm

    @property
    def trial_kind(self) -> TrialKind:
        return self.shape.multi_node if self.nodes > 1 else JOB

    @property
    def processes(self) -> int:
        """On each machine: one for each GPU, or one."""
        return max(1, self.gpus)


def experiment(spec: ExperimentSpec) -> Manifest:
    labels = {**_labels(spec), **spec.labels}
    objective: Manifest = {
        "type": "maximize" if spec.maximize else "minimize",
        "objectiveMetricName": spec.metric,
    }
    if spec.target is not None:
        objective["goal"] = spec.target
    if spec.additional:
        objective["additionalMetricNames"] = list(spec.additional)
    if spec.strategies:
        strategies = [{"name": name, "value": value} for name, value in spec.strategies.items()]
        objective["metricStrategies"] = strategies
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
            # Keeps the suggestion service after an end: needed to open the gate, to pause, and to extend.
            "resumePolicy": "LongRunning",
            "parameters": [
                {"name": p.name, "parameterType": p.type, "feasibleSpace": p.space} for p in spec.parameters
            ],
            "metricsCollectorSpec": metrics_collector_spec(spec.collector),
            **_early_stopping(spec),
            "trialTemplate": _trial_template(spec),
        },
    }


def _algorithm(spec: ExperimentSpec) -> Manifest:
    settings = [{"name": name, "value": value} for name, value in spec.settings.items()]
    return {"algorithmName": spec.algorithm} | ({"algorithmSettings": settings} if settings else {})


def _early_stopping(spec: ExperimentSpec) -> Manifest:
    if spec.early_stopping is None:
        return {}
    settings = [{"name": name, "value": value} for name, value in spec.early_stopping.items()]
    return {
        "earlyStopping": {"algorithmName": "medianstop"}
        | ({"algorithmSettings": settings} if settings else {})
    }


def _trial_template(spec: ExperimentSpec) -> Manifest:
    meta, kind = [{"name": "trialName", "reference": "${trialSpec.Name}"}], spec.trial_kind
    return {
        "retain": True,
        "primaryContainerName": kind.container,
        **(_of_first_worker(kind) if spec.nodes > 1 else {}),
        "trialParameters": [{"name": p.name, "reference": p.name} for p in spec.parameters] + meta,
        "trialSpec": {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            # Katib copies the experiment's labels to trials and pods, but never to the Job.
            "metadata": {"labels": _labels(spec) | spec.job_labels},
            "spec": _job_spec(spec),
        },
    }


def _of_first_worker(kind: TrialKind) -> Manifest:
    """Return the fields without which each worker would report metrics as the trial."""
    if kind is PYTORCH_JOB:
        return {"primaryPodLabels": pytorch_job.MASTER, **pytorch_job.CONDITIONS}
    return {"primaryPodLabels": {INDEX_LABEL: "0"}}


def _job_spec(spec: ExperimentSpec) -> Manifest:
    several = {MULTI_LABEL: "true"} if spec.nodes > 1 else {}
    # Katib's webhook also labels pods, unless it is down and its failure policy ignores that.
    template = {"metadata": {"labels": _labels(spec) | several}, "spec": trial_pod(spec)}
    if spec.trial_kind is PYTORCH_JOB:
        return pytorch_job.job_spec(spec.nodes, spec.processes, template, ttl=JOB_TTL)
    return {
        # The default of 6 retries would hide a crash for minutes.
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": JOB_TTL,
        **(job_fields(spec.nodes) if several else _ignored_disruptions()),
        "template": template,
    }


def _labels(spec: ExperimentSpec) -> dict[str, str]:
    return {MANAGED_BY: "sweepbot", SWEEP_LABEL: spec.sweep}


def _ignored_disruptions() -> Manifest:
    """Return the rule without which a drained node would count as a failed trial."""
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    return {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [disrupted]}]}}


def grace_of(manifest: Manifest) -> int:
    """Return the seconds that a trial's pod of this experiment has to terminate."""
    pod = first_pod(manifest)
    return int(pod.get("terminationGracePeriodSeconds", KUBERNETES_GRACE))


def first_pod(manifest: Manifest) -> Manifest:
    """Return the spec of a trial's pod; of several, the first: they request the same."""
    found: Manifest = pod_templates(manifest["spec"]["trialTemplate"]["trialSpec"])[0]["spec"]
    return found


def main_container(manifest: Manifest) -> Manifest:
    """Return the container of the training in `first_pod`."""
    name = manifest["spec"]["trialTemplate"]["primaryContainerName"]
    found: Manifest = next(c for c in first_pod(manifest)["containers"] if c["name"] == name)
    return found


def gated(manifest: Manifest) -> Manifest:
    """Return the experiment limited to its first trial; `patches.more_trials` raises the counts later."""
    counts = {"maxTrialCount": 1, "parallelTrialCount": 1, "maxFailedTrialCount": 1}
    return {**manifest, "spec": {**manifest["spec"], **counts}}


def renamed(manifest: Manifest, name: str) -> Manifest:
    """Return the same experiment under another name."""
    return {**manifest, "metadata": {**manifest["metadata"], "name": name}}


def with_annotations(manifest: Manifest, annotations: dict[str, str]) -> Manifest:
    """Return the experiment with more annotations."""
    meta = manifest["metadata"]
    return {**manifest, "metadata": {**meta, "annotations": meta.get("annotations", {}) | annotations}}


def with_image(manifest: Manifest, image: str) -> Manifest:
    """Return the experiment with the image by digest."""
    return _with_main(manifest, lambda main: {**main, "image": image})


def with_variable(manifest: Manifest, name: str, change: Callable[[str], str]) -> Manifest:
    """Return the experiment with one environment variable of the training changed, if it has it."""

    def changed(main: Manifest) -> Manifest:
        env = [{**e, "value": change(e["value"])} if e["name"] == name else e for e in main.get("env", [])]
        return {**main, "env": env}

    return _with_main(manifest, changed)


def _with_main(manifest: Manifest, change: Callable[[Manifest], Manifest]) -> Manifest:
    """Return the experiment with the training's container changed, in all of a trial's pods."""
    changed = deepcopy(manifest)
    template = changed["spec"]["trialTemplate"]
    for pod in (each["spec"] for each in pod_templates(template["trialSpec"])):
        name = template["primaryContainerName"]
        pod["containers"] = [change(c) if c["name"] == name else c for c in pod["containers"]]
    return changed
