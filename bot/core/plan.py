"""The manifests of a sweep, planned before anything is created, with its builds (their roles, and names for
users), its forecast of GPU-hours, and the size of a trial.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from bot.core.budget import Budget, Forecast
from bot.core.space import MetricSource, SearchSpace
from bot.text.wording import trial_size
from k8s.katib.manifest import is_pushed, kind_of_trials
from k8s.objects import GPU, Manifest, Ref, ref_of
from k8s.trial_kinds import JOB, TrialKind

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
class BranchImage:
    """The code of one branch that a sweep compares with others, and the image to build of it."""

    label: str  # the branch as its trials name it
    branch: str
    commit: str
    subject: str
    tag: str
    recipe: str
    builds: tuple[Build, ...]
    digest: str = ""  # "": not built so far


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
    # To compare, built one after another; commit, subject, and the build are those of the current one.
    branches: tuple[BranchImage, ...] = ()

    @property
    def branch(self) -> BranchImage | None:
        """The branch whose image is built now; None if all are built, or there is nothing to compare."""
        return next((each for each in self.branches if not each.digest), None)

    def after_build(self, digest: str) -> Self:
        """Return the plan with the image of the current branch, at the next one; at last, at the first."""
        branches = tuple(
            replace(each, digest=digest) if each is self.branch else each for each in self.branches
        )
        at = next((each for each in branches if not each.digest), branches[0])
        return replace(
            self,
            branches=branches,
            commit=at.commit,
            subject=at.subject,
            image_tag=at.tag,
            recipe=at.recipe,
            builds=at.builds,
        )

    @property
    def branch_values(self) -> dict[str, str]:
        """What trials run by the branch's label: it, with the digest of its image."""
        return {each.label: f"{each.label}@{each.digest}" for each in self.branches}

    @property
    def all_builds(self) -> tuple[Build, ...]:
        """The builds of all branches, each once."""
        own = {build.ref.name: build for each in self.branches for build in each.builds}
        return tuple(own.values()) or self.builds

    @property
    def pinned(self) -> str:
        """The commit, or one for each branch, as `SweepRequest.commit` has them."""
        return ",".join(each.commit for each in self.branches) or self.commit

    @property
    def trial_gpus(self) -> int:
        return self.nodes * self.gpus

    @property
    def paced(self) -> bool:
        """Whether more trials run at once as free GPUs, or a budget, allow it."""
        return self.space.auto or self.budget is not None

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
        return kind_of_trials(self.experiment)

    @property
    def has_reader(self) -> bool:
        """Whether Sweepbot's own reader reports the metrics in TensorBoard's files, and prints them."""
        return self.space.source is MetricSource.TENSORBOARD and is_pushed(self.experiment)

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
