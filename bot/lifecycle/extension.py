"""Decide whether a finished sweep can run more trials. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta

from bot.config.policy import Config
from bot.core.commands import Command
from bot.core.events import Event, EventKind
from bot.core.gangs import CHECKING, is_gang
from bot.core.pace import Pace
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.core.space import SearchSpace
from bot.spaces.space import combinations
from k8s.katib.patches import MAX_TRIALS_REACHED
from k8s.katib.status import Experiment

MORE = 20  # trials that the button adds
EXTENDABLE_FOR = timedelta(days=1)  # then the suggestion service is deleted, unless `extendable: true`


def extension_denial(
    sweep: SweepRecord, experiment: Experiment | None, total: int, config: Config, now: datetime
) -> str:
    """Return why the sweep can't have `total` trials, or if 0, MORE trials; "" if it can.

    Katib only extends an experiment that used all its trials and kept its suggestion service.
    """
    space = sweep.plan.space if sweep.plan else None
    if not sweep.phase.final or space is None:
        return f"`{sweep.id}` is still running. Only a finished sweep can be extended."
    if sweep.phase is Phase.SUCCEEDED and not space.extendable and now - sweep.since > EXTENDABLE_FOR:
        return (
            f"`{sweep.id}` can't be extended: it ended more than 24 h ago. For later sweeps, set "
            "`extendable: true` in the space file."
        )
    if why := limit_reason(sweep, experiment, config):
        return f"`{sweep.id}` can't be extended: {why}."
    limit = trial_limit(space, config)
    if total > limit:
        return f"`{sweep.id}` can have up to {limit} trials; got trials={total}."
    if total and total <= space.max_trials:
        return f"`{sweep.id}` already has {space.max_trials} trials. Set `trials=` to a higher total."
    return ""


def limit_reason(sweep: SweepRecord, experiment: Experiment | None, config: Config) -> str:
    """Return why an ended experiment can't run any more trials; "" if it can."""
    space = sweep.plan.space if sweep.plan else None
    if experiment is None or space is None:
        return "its Katib experiment was deleted"
    if sweep.out_of_time:
        return "its time limit was reached"
    if experiment.reason != MAX_TRIALS_REACHED:
        return "Katib only extends a sweep that used all its trials"
    if space.max_trials >= trial_limit(space, config):
        is_all = combinations(space) == space.max_trials
        return "all combinations have been tried" if is_all else f"{space.max_trials} trials are the maximum"
    return ""


def trial_limit(space: SearchSpace, config: Config) -> int:
    """Return the maximum total: a finite space has no more trials than combinations."""
    return min(config.limits.trials, combinations(space) or config.limits.trials)


def more_trials(sweep: SweepRecord, plan: SweepPlan, experiment: Experiment | None, config: Config) -> int:
    """Return the number of trials that the button can add; 0 if none."""
    left = trial_limit(plan.space, config) - plan.space.max_trials
    return 0 if limit_reason(sweep, experiment, config) else min(MORE, left)


def extended(sweep: SweepRecord, plan: SweepPlan, command: Command, now: datetime) -> SweepRecord:
    """Run more trials. Free GPUs are measured again, and the time since the end doesn't count."""
    space = plan.space
    total = command.trials or space.max_trials + sweep.more_trials
    parallel = min(sweep.request.parallel or space.parallel, total) if space.auto else space.parallel
    return sweep.to(
        Phase.RUNNING,
        now,
        Event(kind=EventKind.EXTENDED, by=command.user),
        plan=replace(plan, space=replace(space, max_trials=total, parallel=parallel)),
        ending=None,
        reason="",
        extending=True,
        paused_at=None,
        drained_by=None,
        deadline=sweep.deadline and sweep.deadline + (now - sweep.since),
        pace=Pace(),
        start_wait=CHECKING if is_gang(sweep) else "",
    )
