"""What an experiment of Katib is built from, as values; Katib's names of counts, and of what the search
service learns about stopped trials.
"""

from dataclasses import dataclass, field

from k8s.katib.pod_shape import PodShape, SecretVariables
from k8s.katib.training import Collector
from k8s.objects import Manifest
from k8s.trial_kinds import JOB, TrialKind

REQUEST_ID = "sweepbot/delivery"  # annotation: id of the request that created this experiment
EXPERIMENT_LABEL = "katib.kubeflow.org/experiment"
EXPERIMENT_COUNTS = ("maxTrialCount", "parallelTrialCount", "maxFailedTrialCount")
ENDED_COUNTS = ("trialsSucceeded", "trialsFailed", "trialsKilled", "trialsEarlyStopped")
# Trials without metrics: Katib counts them when it ends an experiment, but not when it starts trials.
UNREPORTED_COUNT = "trialMetricsUnavailable"
INACTIVE = "%inactive"  # the search service's word for a parameter whose condition isn't met
# Metrics of a stopped trial, for the search service: its last value, and the step. They aren't the objective:
# Katib would take a stopped trial's value for the best one, and for the goal.
STOPPED_VALUE, STOPPED_STEP = "sweepbot-stopped-value", "sweepbot-stopped-step"
STOPPED_STRATEGIES = {STOPPED_VALUE: "latest", STOPPED_STEP: "latest"}  # Katib passes on no other metrics


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
