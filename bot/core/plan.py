"""The manifests of a sweep, planned before anything is created."""

from dataclasses import dataclass, replace
from enum import StrEnum

from bot.core.budget import Budget, Forecast
from bot.core.space import MetricSource, SearchSpace
from bot.text.wording import trial_size
from k8s.objects import GPU, Manifest, Ref, ref_of
from k8s.trial_kinds import JOB, TRIAL_KINDS, TrialKind

HOME_CLUSTER = "main"  # name of the cluster that Sweepbot runs in


class Role(StrEnum):
    """What a built image is to a sweep. Values are stored in records; `label` is for users."""

    IMAGE = "image"
    FRAMEWORKS = "heavy packages"
    DEPENDENCIES = "dependencies"
    CODE = "code"

    @property
    def label(self) -> str:
        return "ML frameworks" if self is Role.FRAMEWORKS else self.value


@dataclass(frozen=True, kw_only=True)
class Build:
    """One image built by one Job, shared by all sweeps that need it."""

    role: Role
    repository: str  # path in the registry, without host
    tag: str
    job: Manifest
    needs: str = ""  # the tag of a build that must finish first

    @property
    def ref(self) -> Ref:
        return ref_of(self.job)


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """The manifests of a sweep, planned before anything is created."""

    repo_url: str
    commit: str  # 40 hexadecimal digits
    subject: str  # the commit message's first line
    space: SearchSpace
    gpus: int  # per node of a trial
    image_repository: str  # path in the registry, without host
    image_tag: str
    image_by_digest: str  # as nodes pull it, with a placeholder for the digest; prebuilt images have none
    recipe: str  # description of the build, for users
    results_name: str  # of the MLflow experiment
    queue: str = ""  # Kueue's LocalQueue of new trials; "" if Sweepbot sets none
    priority: str = ""  # of new trials: low, normal, or high
    builds: tuple[Build, ...]  # several are composed; none: a prebuilt image
    experiment: Manifest  # with image_by_digest
    runtime: Manifest | None = None  # TrainingRuntime of TrainJobs, without its owner
    profile: str = ""  # name; "": none are configured
    resource: str = GPU  # that GPUs, or MIG slices, are requested as
    nodes: int = 1  # per trial
    budget: Budget | None = None  # None: no limit
    trial_forecast: Forecast | None = None  # of one trial, for limits of a month; None: there were none
    cluster: str = HOME_CLUSTER  # of its trials
    cluster_reason: str = ""  # why this one; "": there was no choice

    @property
    def trial_gpus(self) -> int:
        return self.nodes * self.gpus

    @property
    def forecast(self) -> Forecast | None:
        """What all trials will use, and no more than the budget; None: no limit needs it."""
        if self.trial_forecast is None:
            return None
        each = self.trial_forecast.gpu_hours
        known = [each * self.space.max_trials] if each is not None else []
        known += [self.budget.gpu_hours] if self.budget else []
        return replace(self.trial_forecast, gpu_hours=min(known, default=None))

    @property
    def trial_kind(self) -> TrialKind:
        return TRIAL_KINDS[self.experiment["spec"]["trialTemplate"]["trialSpec"]["kind"]]

    @property
    def has_reader(self) -> bool:
        """Whether Sweepbot's own reader reports the metrics in TensorBoard's files, and prints them."""
        collector = self.experiment["spec"].get("metricsCollectorSpec", {}).get("collector", {})
        return self.space.source is MetricSource.TENSORBOARD and collector.get("kind") == "Push"

    @property
    def with_pod(self) -> Manifest:
        """The manifest that has the spec of the trials' pods, for `k8s.katib.manifest`."""
        return self.runtime or self.experiment

    @property
    def needs_service(self) -> bool:
        """Whether its workers find each other by Sweepbot's Service; operators create others."""
        return self.nodes > 1 and self.trial_kind is JOB

    @property
    def starts_together(self) -> bool:
        """Whether all nodes of a trial must be free at once, because no queue admits its pods together."""
        return self.nodes > 1 and self.gpus > 0 and not self.queue

    @property
    def size(self) -> str:
        """What one trial has, for users: `8 GPUs`, `4 nodes × 8 GPUs`."""
        return trial_size(self.nodes, self.gpus)

    def build(self, role: Role) -> Build | None:
        return next((build for build in self.builds if build.role is role), None)

    @property
    def experiment_ref(self) -> Ref:
        return ref_of(self.experiment)
