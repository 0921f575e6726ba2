"""Sweeps with several nodes per trial and no queue: half-started trials of two block each other. Pure.

Nothing else admits all workers of a trial together, so Sweepbot starts such sweeps one after another.
"""

from bot.core.record import Phase, SweepRecord

CHECKING = "Checking for free nodes."
ACTIVE = {Phase.PENDING, Phase.RUNNING}  # phases in which trials can start


def is_gang(sweep: SweepRecord) -> bool:
    """Return whether this sweep must wait until nodes are free for all workers of a trial."""
    plan = sweep.plan
    return plan is not None and plan.nodes > 1 and plan.gpus > 0 and not sweep.queue_and_priority[0]


def can_start_trials(sweep: SweepRecord) -> bool:
    """Return whether its trials run or can start at any time; between two trials, too."""
    return sweep.phase in ACTIVE and not waits_for_nodes(sweep)


def waits_for_nodes(sweep: SweepRecord) -> bool:
    """Return whether it has no trials, and must not start any yet: it is new, was paused, or had ended."""
    is_new = sweep.phase is Phase.PENDING and not sweep.submitted
    return is_gang(sweep) and sweep.phase in ACTIVE and (is_new or bool(sweep.start_wait))
