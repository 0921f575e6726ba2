"""What the outside says about one sweep, as far as its phase asks."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from bot.core.commands import Command
from bot.core.plan import Build, SweepPlan
from bot.health.diagnosis import Diagnosis
from k8s.jobs import Job, JobState
from k8s.katib.status import Experiment, ExperimentState, Trial, TrialState
from k8s.pods import Pod


@dataclass(frozen=True, kw_only=True)
class BuildSeen:
    """One of the images that make the sweep's, and the Job that makes it."""

    build: Build
    there: bool | None = None  # the registry has it, or what was to be made of it; None: not asked
    digest: str = ""  # of the image that Sweepbot made, and no other; empty: it is not needed, or not there
    job: Job | None = None
    shared: bool = False  # other sweeps wait for it, too
    trouble: Diagnosis | None = None
    pod: str = ""  # of a failed Job: it has the log
    container: str = ""  # of that pod
    alive: tuple[Pod, ...] = ()  # when the sweep stops: pods that have not ended
    started: bool = False  # its container has; until then its Job has to be looked into

    @property
    def running(self) -> bool:
        return self.job is not None and self.job.state is JobState.ACTIVE

    @property
    def ended_in_vain(self) -> bool:
        return self.job is not None and not self.running and self.there is False

    def is_own(self, uids: Mapping[str, str]) -> bool:
        """This sweep waited for just this Job. An older one that ended in vain is done anew."""
        return self.job is not None and uids.get(self.job.name) == self.job.uid


@dataclass(frozen=True, kw_only=True)
class Observation:
    commands: tuple[Command, ...] = ()
    plan: SweepPlan | None = None  # received: what git and the space file lead to
    others: int = 0  # received: peak GPUs of the person's other live sweeps, where these are limited
    refusal: str = ""  # received: or why they lead nowhere
    digest: str | None = None  # building: of the image in the registry
    builds: tuple[BuildSeen, ...] = ()
    experiment: Experiment | None = None
    foreign: bool = False  # the experiment of this name is an older sweep's
    trials: tuple[Trial, ...] = ()
    jobs: tuple[Job, ...] = ()  # of trials
    pods: tuple[Pod, ...] = ()  # of trials
    trouble: tuple[Diagnosis, ...] = ()  # of trials, the gravest first
    look_in: timedelta | None = None  # what was seen asks for another look by then

    @property
    def live(self) -> tuple[Trial, ...]:
        """Trials that Katib has not ended; whether they run, only their pods know."""
        return tuple(t for t in self.trials if t.state is TrialState.LIVE)

    @property
    def open(self) -> bool:
        """The experiment may still start trials."""
        return self.experiment is not None and self.experiment.state is ExperimentState.RUNNING

    @property
    def active_jobs(self) -> tuple[Job, ...]:
        return tuple(j for j in self.jobs if j.state is JobState.ACTIVE)

    @property
    def running(self) -> set[str]:
        """Names of trials whose training container runs."""
        return {p.job for p in self.pods if p.running}

    @property
    def held(self) -> set[str]:
        """Names of trials that hold GPUs, or still may."""
        pods = {p.job for p in self.pods if not p.finished}
        return pods | {j.name for j in self.active_jobs} | {t.name for t in self.live}

    def unwanted_builds(self, image: str | None) -> tuple[BuildSeen, ...]:
        """Those that run although this sweep needs nothing of them any more, nor does another one."""
        return () if image else tuple(b for b in self.builds if (b.running or b.alive) and not b.shared)
