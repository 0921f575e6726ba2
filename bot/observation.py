"""What the outside says about one sweep, as far as its phase asks."""

from dataclasses import dataclass

from bot.health import Diagnosis
from bot.models import Ask, SweepPlan
from k8s.jobs import Job, JobState
from k8s.katib import Experiment, ExperimentState, Trial, TrialState
from k8s.pods import Pod


@dataclass(frozen=True, kw_only=True)
class Observation:
    asks: tuple[Ask, ...] = ()
    plan: SweepPlan | None = None  # received: what git and the space file lead to
    refusal: str = ""  # received: or why they lead nowhere
    digest: str | None = None  # building: of the image in the registry
    build: Job | None = None
    build_shared: bool = False  # other sweeps wait for the same build
    build_trouble: Diagnosis | None = None
    experiment: Experiment | None = None
    foreign: bool = False  # the experiment of this name is an older sweep's
    trials: tuple[Trial, ...] = ()
    jobs: tuple[Job, ...] = ()  # of trials
    pods: tuple[Pod, ...] = ()  # of trials
    trouble: tuple[Diagnosis, ...] = ()

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
    def held(self) -> set[str]:
        """Names of trials that hold GPUs, or still may."""
        pods = {p.job for p in self.pods if not p.finished}
        return pods | {j.name for j in self.active_jobs} | {t.name for t in self.live}

    def build_failed_earlier(self, own_uid: str) -> bool:
        """An earlier sweep's build that left no image, or one since removed: to be cleared and done anew."""
        over = self.build is not None and self.build.state is not JobState.ACTIVE
        return over and self.digest is None and self.build is not None and self.build.uid != own_uid

    def build_unwanted(self, image: str | None) -> bool:
        """A running build of which the sweep needs nothing any more, nor does another one."""
        running = self.build is not None and self.build.state is JobState.ACTIVE
        return running and image is None and not self.build_shared
