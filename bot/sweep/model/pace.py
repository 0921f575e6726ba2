"""Make the engine follow a paced sweep (`parallel=auto`, `budget=`): `parallel_now` trials at once, and
`trials_now` in total. Pure.
"""

from datetime import datetime

from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.sweep.model import engine
from bot.sweep.model.changes import Patch
from bot.sweep.model.experiment import ended_by_lowered_count
from bot.sweep.model.observation import Observation
from k8s.engine import Experiment


def steer(
    sweep: SweepRecord, plan: SweepPlan, experiment: Experiment, seen: Observation, _: datetime
) -> Patch | None:
    """Return the patch of the counts that Katib needs.

    Before a pause, those that follow free GPUs are lowered as far as they can be: a paused experiment can't
    be edited, and it continues with as many trials as its counts allow.
    """
    space = plan.space
    if not plan.paced or sweep.first_only or (sweep.draining and not sweep.extending):
        return None
    if not (seen.open or sweep.extending or ended_by_lowered_count(sweep, seen)):
        return None
    if sweep.holds and not (space.auto and seen.open):
        return None
    running = (1 if sweep.holds else sweep.parallel_now) if space.auto else space.parallel
    total = sweep.trials_now or space.max_trials
    return engine.limit(
        plan, experiment, min(running, total), allowed=max(total, 2), optional=not sweep.extending
    )
