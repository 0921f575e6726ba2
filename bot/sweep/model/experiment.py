"""What an experiment's counts and end mean for its sweep, and how long it can be extended. Pure."""

from datetime import timedelta

from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.sweep.model.observation import Observation
from k8s.engine import End, Experiment

EXPERIMENT_DELETED = "The Katib experiment was deleted, or isn't in this cluster"
EXTENDABLE_FOR = timedelta(days=1)  # then the suggestion service is deleted, unless `extendable: true`
OUT_OF_TIME = "time limit reached"  # the `draining` of a sweep whose `max_hours` have passed
OUT_OF_BUDGET = "budget reached"  # that of a sweep whose `budget` has no room for another trial


def can_submit(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether to create the experiment now, and what it needs with it."""
    missing = not (seen.experiment or sweep.submitted or seen.start_blocked)
    return sweep.phase is Phase.PENDING and bool(sweep.image) and missing


def is_limited(plan: SweepPlan, experiment: Experiment) -> bool:
    """Return whether the experiment is still limited to fewer trials than it was last asked to run.

    The total of a paced sweep is lowered for other reasons, but never to 1.
    """
    total = plan.space.max_trials
    return experiment.max_trials < (min(2, total) if plan.paced else total)


def ended_by_lowered_count(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether all trials ended at a lowered total, so that a higher one continues."""
    plan, experiment = sweep.plan, seen.experiment
    if experiment is None or plan is None or not plan.paced or sweep.first_only or sweep.draining:
        return False
    lowered = max(experiment.max_trials, experiment.made) < plan.space.max_trials
    return lowered and experiment.end is End.ALL_TRIALS
