"""What people ask of a living sweep, by button or by word: allowed or not, in time or not. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta

from bot.access import may
from bot.config import Config
from bot.models import Act, Ask, Deed, Event, EventKind, Phase, SweepRecord
from bot.mrkdwn import code
from bot.observation import Observation
from bot.space import combinations
from k8s.katib import MAX_TRIALS_REACHED, Trial

TWICE = timedelta(minutes=1)  # after the end: a click may have waited for its turn
HISTORY = 50  # deeds that a record keeps; the log keeps all


def hear(sweep: SweepRecord, ask: Ask, seen: Observation, config: Config, now: datetime) -> SweepRecord:
    """Done or refused, it stands in the sweep's history. Questions are answered elsewhere."""
    if ask.act.leaves_alone or _again(sweep, ask, now):
        return sweep
    refusal = may(ask.user, ask.act, sweep, config) or _untimely(sweep, ask, seen, config)
    deed = Deed(at=now, user=ask.user, name=ask.user_name, act=ask.act, about=about(ask), refused=refusal)
    sweep = noted(sweep, deed)
    if refusal:
        # It may have been an old message's button: both are drawn anew.
        return sweep.says(_privately(ask, refusal), shown="", health_shown="")
    return _done(sweep, ask, seen, now)


def _again(sweep: SweepRecord, ask: Ask, now: datetime) -> bool:
    """Whether this is a person's second click on what the first one has done."""
    if ask.act is Act.CANCEL and sweep.cancelled_by == ask.user:
        return not sweep.phase.final or now - sweep.since < TWICE
    mine = [trial for trial, user in sweep.to_kill.items() if user == ask.user]
    return ask.act is Act.KILL and bool(ask.trial) and any(trial.endswith(ask.trial) for trial in mine)


def about(ask: Ask) -> str:
    """Of which trial, or of how many."""
    return ask.trial or (f"{ask.trials} trials" if ask.trials else "")


def noted(sweep: SweepRecord, deed: Deed) -> SweepRecord:
    return replace(sweep, history=(*sweep.history, deed)[-HISTORY:])


def _done(sweep: SweepRecord, ask: Ask, seen: Observation, now: datetime) -> SweepRecord:
    match ask.act:
        case Act.CANCEL:
            return replace(sweep, cancelled_by=ask.user)
        case Act.DRAIN:
            return sweep.says(Event(kind=EventKind.DRAINING, by=ask.user), drained_by=ask.user)
        case Act.KILL:
            trial = named(seen.live, ask.trial)[0]
            return replace(sweep, to_kill={**sweep.to_kill, trial.name: ask.user})
        case Act.EXTEND:
            return _extended(sweep, ask, now)
        case _:
            return sweep


def _untimely(sweep: SweepRecord, ask: Ask, seen: Observation, config: Config) -> str:
    """Why this can't be done now; empty when it can."""
    searching = sweep.phase in {Phase.PROVING, Phase.RUNNING} and sweep.submitted
    if ask.act is Act.EXTEND:
        return _no_extension(sweep, ask, seen, config)
    if sweep.phase.final:
        return f"`{sweep.id}` has already ended."
    if sweep.cancelled_by:
        return f"<@{sweep.cancelled_by}> has already cancelled `{sweep.id}`."
    if ask.act is Act.DRAIN and (sweep.drained_by or not searching):
        return f"`{sweep.id}` {'is draining already' if sweep.drained_by else 'has no running trials yet'}."
    if ask.act is Act.KILL and not (searching and len(named(seen.live, ask.trial)) == 1):
        live = ", ".join(f"`{t.name}`" for t in seen.live) or "none"
        return f"{code(ask.trial)} is not one of the running trials of `{sweep.id}`; those are: {live}."
    return ""


def _no_extension(sweep: SweepRecord, ask: Ask, seen: Observation, config: Config) -> str:
    """Katib adds trials only to what reached its number of trials and kept its suggestion service."""
    space = sweep.plan.space if sweep.plan else None
    if not sweep.phase.final or space is None:
        return f"`{sweep.id}` has not ended; only a finished sweep can be extended."
    if not space.extendable:
        return f"`{sweep.id}` can't be extended: its space file did not say `extendable: true`."
    if seen.experiment is None or seen.experiment.reason != MAX_TRIALS_REACHED:
        return f"`{sweep.id}` can't be extended: Katib allows it only after all trials were done."
    most = min(config.limits.trials, combinations(space) or config.limits.trials)
    if ask.trials > most:
        return f"`{sweep.id}` can have {most} trials at most."
    if ask.trials <= space.max_trials:
        return f"`{sweep.id}` had {space.max_trials} trials already; say a larger number in all."
    return ""


def _extended(sweep: SweepRecord, ask: Ask, now: datetime) -> SweepRecord:
    if sweep.plan is None:
        return sweep
    plan = replace(sweep.plan, space=replace(sweep.plan.space, max_trials=ask.trials))
    event = Event(kind=EventKind.EXTENDED, by=ask.user)
    return sweep.to(Phase.RUNNING, now, event, plan=plan, ending=None, reason="", extending=True)


def named(trials: tuple[Trial, ...], name: str) -> list[Trial]:
    """The trials of this name, or whose name ends with it."""
    return [t for t in trials if name and t.name.endswith(name)]


def _privately(ask: Ask, text: str) -> Event:
    return Event(
        kind=EventKind.NOT_ALLOWED,
        text=text,
        to_user=ask.user,
        response_url=ask.response_url,
        in_thread=ask.in_thread,
    )
