"""Run more trials of a finished sweep (`/sweep extend`, its button), or say why it can't have any. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from bot.core.commands import Action, Command
from bot.core.events import Event
from bot.core.feature_state import FeatureState
from bot.core.record import Phase, SweepRecord
from bot.core.space import SearchSpace
from bot.platform.config.policy import Config
from bot.platform.slack.blocks import button
from bot.platform.slack.mrkdwn import block, plain
from bot.sweep.model.experiment import EXTENDABLE_FOR, OUT_OF_BUDGET, OUT_OF_TIME
from bot.sweep.model.feature import CommandRule, Feature
from bot.sweep.model.limits import restart_denial
from bot.sweep.model.observation import Observation
from bot.sweep.model.progress import finished_trials
from bot.sweep.model.texts import confirmation, display_name
from bot.sweep.spaces.space import combinations
from bot.text.wording import counted
from k8s.engine import End, Experiment

EXTEND = "extend_sweep"  # the button's action_id
MORE = 20  # trials that the button adds
RERUN_WITH = {OUT_OF_TIME: "max_hours", OUT_OF_BUDGET: "budget"}  # the limit that was reached, by `draining`


@dataclass(frozen=True, kw_only=True)
class ExtensionState(FeatureState):
    """What a finished sweep can add."""

    name: ClassVar[str] = "extension"

    more: int = 0  # how many trials the button can add
    why_not: str = ""  # why it adds none


def extension_denial(
    sweep: SweepRecord, command: Command, seen: Observation, config: Config, now: datetime
) -> str:
    """Return why the sweep can't have the command's total of trials, or if 0, MORE trials; "" if it can.

    Katib only extends an experiment that used all its trials and kept its suggestion service.
    """
    experiment, total = seen.experiment, command.trials
    space = sweep.plan.space if sweep.plan else None
    if not sweep.phase.final or space is None:
        state = {Phase.PAUSED: "paused", Phase.HELD: "on hold", Phase.STOPPING: "stopping"}.get(sweep.phase)
        return f"`{sweep.id}` is {state or 'still running'}. Only a finished sweep can be extended."
    if sweep.phase is Phase.SUCCEEDED and not space.extendable and now - sweep.since > EXTENDABLE_FOR:
        return (
            f"`{sweep.id}` can't be extended: it ended more than 24 h ago. For later sweeps, set "
            "`extendable: true` in the space file."
        )
    if why := limit_reason(sweep, experiment, config):
        key = RERUN_WITH.get(sweep.draining, "")
        fix = f" *Fix:* Run it again with a higher limit: `/sweep rerun {sweep.id} {key}=…`" if key else ""
        return f"`{sweep.id}` can't be extended: {why}.{fix}"
    limit = trial_limit(space, config)
    if total > limit:
        return f"`{sweep.id}` can have up to {limit} trials; got trials={total}."
    if total and total <= space.max_trials:
        return f"`{sweep.id}` already has {space.max_trials} trials. Set `trials=` to a higher total."
    return restart_denial(sweep, command, seen, config)


def limit_reason(sweep: SweepRecord, experiment: Experiment | None, config: Config) -> str:
    """Return why an ended experiment can't run any more trials; "" if it can."""
    space = sweep.plan.space if sweep.plan else None
    if experiment is None or space is None:
        return "its Katib experiment was deleted"
    if space.pairs:
        return "it compared branches, and adding trials until one looks better would make any branch win"
    if sweep.draining in RERUN_WITH:
        return f"its {sweep.draining.replace('reached', 'was reached')}"
    if experiment.end is not End.ALL_TRIALS:
        return "Katib only extends a sweep that used all its trials"
    if space.max_trials >= trial_limit(space, config):
        is_all = combinations(space.parameters) == space.max_trials
        return "all combinations have been tried" if is_all else f"{space.max_trials} trials are the maximum"
    return ""


def trial_limit(space: SearchSpace, config: Config) -> int:
    """Return the maximum total: a finite space has no more trials than combinations."""
    return min(config.limits.trials, combinations(space.parameters) or config.limits.trials)


def ended(sweep: SweepRecord, seen: Observation, config: Config) -> SweepRecord:
    """Remember how many trials the button can add to a finished sweep, or why it adds none."""
    if sweep.plan is None or sweep.ending is not Phase.SUCCEEDED:
        return sweep
    if why := limit_reason(sweep, seen.experiment, config):
        return sweep.put(ExtensionState(why_not=why))
    left = trial_limit(sweep.plan.space, config) - sweep.plan.space.max_trials
    return sweep.put(ExtensionState(more=min(MORE, left)))


def extended(sweep: SweepRecord, command: Command, _: Observation, __: Config, now: datetime) -> SweepRecord:
    """Run more trials; the time since the end doesn't count toward `max_hours`."""
    plan = sweep.plan
    if plan is None:
        return sweep
    space = plan.space
    total = command.trials or space.max_trials + sweep.of(ExtensionState).more
    parallel = min(sweep.request.parallel or space.parallel, total) if space.auto else space.parallel
    space = replace(space, max_trials=total, parallel=parallel)
    text = f"{display_name(sweep, command.user)} extended this sweep to {counted(total, 'trial')}."
    return sweep.to(
        Phase.RUNNING,
        now,
        Event(kind="extended", text=f":runner: {text}"),
        plan=replace(plan, space=space),
        ending=None,
        reason="",
        extending=True,
        cancelled_by=None,  # after its last trial had ended
        draining="",
        holds=(),
        deadline=sweep.deadline and sweep.deadline + (now - sweep.since),
    )


def rejected(sweep: SweepRecord, seen: Observation, why: str, now: datetime) -> SweepRecord | None:
    """Report that Katib rejected more trials; the sweep ends again as before.

    While the experiment is open, the first trial of a gated sweep failed just before it: observed next. What
    runs or is held must not end with it.
    """
    if seen.open or seen.held or sweep.holds or not sweep.extending:
        return None
    text = f":x: The cluster rejected the extension:\n{block(why)}"
    return sweep.to(
        Phase.SUCCEEDED,
        now,
        Event(kind="submit_refused", text=text),
        reason=finished_trials(sweep.progress),
        ending=Phase.SUCCEEDED,
        extending=False,
    )


def footer(sweep: SweepRecord) -> str:
    why = sweep.of(ExtensionState).why_not if sweep.phase is Phase.SUCCEEDED else ""
    return f"Can't run more trials: {plain(why)}" if why else ""


def buttons(sweep: SweepRecord) -> list[dict[str, Any]]:
    number = sweep.of(ExtensionState).more
    if sweep.phase is not Phase.SUCCEEDED or not number:
        return []
    more, peak = counted(number, "more trial"), sweep.plan.space.parallel if sweep.plan else 0
    effect = f"Continues {sweep.id} with {more}, up to {peak} in parallel."
    return [
        button(EXTEND, more, sweep.id, confirm=confirmation("Run more trials?", effect, "Run", "Don't run"))
    ]


FEATURE = Feature(
    name="extension",
    states=(ExtensionState,),
    commands={
        Action.EXTEND: CommandRule(
            denial=extension_denial,
            apply=extended,
            button=EXTEND,
            when_ended=True,
            counts_again=True,
            restarts=True,
        )
    },
    rejected=rejected,
    ended=ended,
    footer=footer,
    buttons=buttons,
)
