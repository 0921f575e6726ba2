"""What an experiment's counts and end mean for its sweep. Pure."""

from datetime import timedelta

from bot.core.record import SweepRecord
from bot.core.space import SearchSpace
from k8s.engine import End, Experiment

EXPERIMENT_DELETED = "The Katib experiment was deleted, or isn't in this cluster"
EXTENDABLE_FOR = timedelta(days=1)  # then the suggestion service is deleted, unless `extendable: true`
OUT_OF_TIME = "time limit reached"  # the `draining` of a sweep whose `max_hours` have passed
OUT_OF_BUDGET = "budget reached"  # that of a sweep whose `budget` has no room for another trial


def is_limited(space: SearchSpace, experiment: Experiment) -> bool:
    """Return whether the experiment is still limited to fewer trials than it was last asked to run.

    The total of a sweep that follows free GPUs is lowered for other reasons, but never to 1.
    """
    return experiment.max_trials < (min(2, space.max_trials) if space.auto else space.max_trials)


def ended_by_lowered_count(sweep: SweepRecord, experiment: Experiment) -> bool:
    """Return whether all trials ended at a lowered total, so that a higher one continues."""
    space = sweep.plan.space if sweep.plan else None
    if space is None or not space.auto or sweep.first_only or sweep.draining:
        return False
    lowered = experiment.max_trials < space.max_trials and experiment.made < space.max_trials
    return lowered and experiment.end is End.ALL_TRIALS
