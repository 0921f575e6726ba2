"""What one reconcile observed in git, the registry, and the cluster; each phase needs other fields."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from operator import attrgetter
from typing import Any, Self, TypeVar

from bot.core.commands import Command
from bot.core.curves import LiveReading, Point
from bot.core.plan import Build, SweepPlan
from bot.core.record import LimitCheck
from bot.platform.config.permissions import OtherPeaks
from bot.platform.pod_health.diagnosis import Diagnosis
from k8s.engine import Experiment, ExperimentState, Trial, TrialState
from k8s.jobs import Job, JobState
from k8s.objects import Manifest, read_once
from k8s.pods import Pod

Seen = TypeVar("Seen")


@dataclass(frozen=True, kw_only=True)
class BuildSeen:
    """One image of the sweep's build, and the Job that builds it."""

    build: Build
    there: bool | None = None  # the registry has it, or the image built on it; None: not checked
    digest: str = ""  # of an image that Sweepbot built; "" if missing or not needed
    job: Job | None = None
    shared: bool = False  # other sweeps need this build
    trouble: Diagnosis | None = None
    pod: str = ""  # of a failed Job, for its log
    container: str = ""  # of that pod
    alive: tuple[Pod, ...] = ()  # while stopping: pods that haven't ended
    started: bool = False  # whether its container has; until then its Job is diagnosed

    @property
    def running(self) -> bool:
        return self.job is not None and self.job.state is JobState.ACTIVE

    @property
    def ended_without_image(self) -> bool:
        return self.job is not None and not self.running and self.there is False

    def is_own(self, uids: Mapping[str, str]) -> bool:
        """Return whether this sweep waited for this Job. An older Job without an image is replaced."""
        return self.job is not None and uids.get(self.job.name) == self.job.uid


@dataclass(frozen=True, kw_only=True)
class RawObjects:
    """What the sweep has in its trials' cluster, before features change it: Jobs and pods as objects."""

    experiment: Experiment | None = None
    trials: tuple[Trial, ...] = ()
    jobs: Sequence[Manifest] = ()
    pods: Sequence[Manifest] = ()


@dataclass(frozen=True, kw_only=True)
class Observation:
    commands: tuple[Command, ...] = ()
    plan: SweepPlan | None = None  # received: made from the commit and the space file
    others: OtherPeaks = field(default_factory=OtherPeaks)  # received, and for COUNTED_AGAIN
    limit_checks: tuple[LimitCheck, ...] = ()  # of `others`, and of budgets: to save with
    refusal: str = ""  # received: why there is no plan
    digest: str | None = None  # building: of the image in the registry
    builds: tuple[BuildSeen, ...] = ()
    experiment: Experiment | None = None
    raw: RawObjects = field(default_factory=RawObjects)
    foreign: bool = False  # the experiment of this name belongs to an older sweep
    trials: tuple[Trial, ...] = ()
    jobs: tuple[Job, ...] = ()  # of trials
    pods: tuple[Pod, ...] = ()  # of trials
    nodes: int = 1  # of each trial
    start_blocked: bool = False  # no trials may start yet
    ran: frozenset[str] = frozenset()  # live trials that have run, also if their pods are gone
    starting_again: frozenset[str] = frozenset()  # trials that Katib counts as failed, shown as live here
    missing: frozenset[str] = frozenset()  # deleted trials that Katib creates again
    reopens: bool = False  # the experiment has ended only because of trials that start again
    trouble: tuple[Diagnosis, ...] = ()  # of trials, the most severe first
    wanted_curves: Callable[[Mapping[str, Point]], set[str]] | None = (
        None  # from the latest points: which to read
    )
    reading: LiveReading | None = None  # running: what trials report; None: not read
    observe_again_in: timedelta | None = None  # observe again within this time
    cached: bool = False  # read from caches, at least in part
    features: Mapping[type, Any] = field(default_factory=dict)  # by type: what features observed (`of`)

    def of(self, kind: type[Seen]) -> Seen:
        """Return what a feature observed; its defaults if nothing."""
        return self.features.get(kind) or kind()

    def put(self, seen: object, **changes: Any) -> Self:
        """Return the observation with that of a feature, and other fields changed."""
        return replace(self, features={**self.features, type(seen): seen}, **changes)

    def again_in(self, delay: timedelta) -> Self:
        """Return the observation, to be repeated after the delay at the latest."""
        return replace(self, observe_again_in=min(delay, self.observe_again_in or delay))

    @cached_property
    def live(self) -> tuple[Trial, ...]:
        """Active trials by Katib's status; only their pods show whether they run."""
        return read_once(_live, self.trials)

    @cached_property
    def live_names(self) -> frozenset[str]:
        return read_once(_live_names, self.trials)

    @cached_property
    def trial_names(self) -> frozenset[str]:
        return read_once(_names, self.trials)

    @cached_property
    def succeeded(self) -> tuple[Trial, ...]:
        return read_once(_succeeded, self.trials)

    @cached_property
    def open(self) -> bool:
        """Whether the experiment can start trials."""
        return self.experiment is not None and self.experiment.state is ExperimentState.RUNNING

    @cached_property
    def active_jobs(self) -> tuple[Job, ...]:
        return read_once(_active, self.jobs)

    @cached_property
    def job_names(self) -> frozenset[str]:
        return read_once(_names, self.jobs)

    @cached_property
    def running(self) -> frozenset[str]:
        """Names of trials whose training container runs, on all of their nodes."""
        return self._sorted_pods.running - self.incomplete

    @cached_property
    def notable_pods(self) -> tuple[Pod, ...]:
        return self._sorted_pods.notable

    @cached_property
    def _sorted_pods(self) -> "_SortedPods":
        return read_once(_sorted, self.pods)

    @cached_property
    def incomplete(self) -> set[str]:
        """Names of trials of several nodes of which one hasn't started: the others wait for it."""
        if self.nodes == 1:
            return set()
        several = {p.job for p in self.pods if p.index}
        unstarted = several & {p.job for p in self.pods if not (p.began or p.finished)}
        return unstarted | self._without_some_pods

    @cached_property
    def _without_some_pods(self) -> set[str]:
        """Names of trials whose Job hasn't created all pods, as by a quota; an ending Job deletes some."""
        ending = {p.job for p in self.pods if p.finished or p.deleted}
        there = Counter(job for job, _ in {(p.job, p.index) for p in self.pods})
        return {job for job, count in there.items() if count < self.nodes and job not in ending}

    @property
    def last_values(self) -> dict[str, tuple[int, float]]:
        """The step and value that each trial reported last, as far as they were read."""
        latest = self.reading.latest if self.reading else {}
        return {name: (point.step, point.value) for name, point in latest.items()}

    @cached_property
    def finishing(self) -> set[str]:
        """Names of active trials whose training has ended: Katib counts them seconds later.

        A pod that was evicted or deleted is replaced, so its trial waits again.
        """
        ended = {p.job for p in self._sorted_pods.exited if not p.deleted and not p.failure[0]}
        ended |= read_once(_ended, self.jobs)
        ended &= self.live_names
        return ended - {p.job for p in self.pods if not p.finished and not p.exit} if ended else ended

    @cached_property
    def held(self) -> set[str]:
        """Names of trials with allocated GPUs, or that can still get them."""
        pods = {p.job for p in self.pods if not p.finished}
        return pods | {j.name for j in self.active_jobs} | self.live_names

    def unwanted_builds(self, image: str | None) -> tuple[BuildSeen, ...]:
        """Return the builds that run and that neither this sweep nor another one needs."""
        return () if image else tuple(b for b in self.builds if (b.running or b.alive) and not b.shared)


def _live(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    return tuple(t for t in trials if t.state is TrialState.LIVE)


def _live_names(trials: Sequence[Trial]) -> frozenset[str]:
    return frozenset(t.name for t in read_once(_live, trials))


def _succeeded(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    return tuple(t for t in trials if t.state is TrialState.SUCCEEDED)


def _names(found: Sequence[Trial | Job]) -> frozenset[str]:
    return frozenset(each.name for each in found)


def _active(jobs: Sequence[Job]) -> tuple[Job, ...]:
    return tuple(j for j in jobs if j.state is JobState.ACTIVE)


def _ended(jobs: Sequence[Job]) -> frozenset[str]:
    return frozenset(j.name for j in jobs if j.state is not JobState.ACTIVE)


@dataclass(frozen=True)
class _SortedPods:
    running: frozenset[str]  # their trials
    notable: tuple[Pod, ...]
    exited: tuple[Pod, ...]


def _sorted(pods: Sequence[Pod]) -> _SortedPods:
    """Sort them by C's loops: after each change, a long sweep's hundreds are another list."""
    running = frozenset(map(attrgetter("job"), filter(attrgetter("running"), pods)))
    notable, exited = filter(attrgetter("notable"), pods), filter(attrgetter("exit"), pods)
    return _SortedPods(running, tuple(notable), tuple(exited))
