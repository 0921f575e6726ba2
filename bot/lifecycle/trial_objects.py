"""List what the trials of several nodes need beside the experiment. Pure."""

from datetime import datetime, timedelta

from bot.core.plan import SweepPlan
from bot.lifecycle.observation import Observation
from k8s.katib.multi_node import service
from k8s.katib.train_job import owned
from k8s.objects import Manifest

LATE = timedelta(seconds=30)  # a trial without its Job: someone may have deleted the runtime


def services(plan: SweepPlan) -> tuple[Manifest, ...]:
    """Return the Service by which the workers of a trial find each other; all sweeps share it."""
    return (service(plan.experiment_ref.namespace),) if plan.needs_service else ()


def runtimes(plan: SweepPlan, seen: Observation, now: datetime) -> tuple[Manifest, ...]:
    """Return the TrainingRuntime until the first TrainJob shows that it exists, and if one is late.

    The experiment is created first, because it owns the runtime. Katib creates the first trial seconds later,
    and retries if Trainer rejects a TrainJob without a runtime.
    """
    if plan.runtime is None or seen.experiment is None or not seen.open:
        return ()
    # Jobs of an earlier experiment of the sweep don't count.
    jobs = {job.name for job in seen.jobs} & {trial.name for trial in seen.trials}
    started = (trial.started for trial in seen.live if trial.name not in jobs)
    if jobs and not any(at and now - at > LATE for at in started):
        return ()
    return (owned(plan.runtime, plan.experiment, seen.experiment.raw["metadata"]["uid"]),)
