"""Say with which parameter values trials fail, unless chance explains it, and offer buttons that continue
without them.
"""

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar

from bot.core.events import Event
from bot.core.feature_state import FeatureState
from bot.core.record import ACTIVE, SweepRecord
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.slack.blocks import actions, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code, plain
from bot.sweep.clients import SweepClients
from bot.sweep.features.failing_parameters.pattern import Condition, Pattern, Row, find_pattern
from bot.sweep.model.feature import Feature, LiveMessage, Moment, Step
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import continue_button
from bot.sweep.spaces.bounds import MAX_CONDITIONS
from k8s.engine import TrialState

KIND = "failing_parameters"
ENDED = {TrialState.SUCCEEDED, TrialState.STOPPED_EARLY, TrialState.FAILED}
OPPOSITE = {"≥": "<", "≤": ">", "=": "!="}
WORDS = {"≥": ("below", "below"), "≤": ("above", "above"), "=": ("without", "others")}  # button, counts
TYPED = re.compile(r"[\w.+-]{1,60}")  # a value that needs no quotes in a command


@dataclass(frozen=True, kw_only=True)
class FailingParameters(FeatureState):
    name: ClassVar[str] = "failing_parameters"
    of_one_attempt: ClassVar[bool] = True

    pattern: Pattern | None = None
    cause: str = ""  # of the failures in it
    causes: dict[str, str] = field(default_factory=dict)  # of diagnosed trials: the diagnosis's key
    words: dict[str, str] = field(default_factory=dict)  # by such a key: the cause, of its first trial
    counted: int = 0  # ended trials at the last search for a pattern
    ts: str | None = None  # of the message
    fingerprint: str = ""  # of that message in Slack


@dataclass(frozen=True, kw_only=True)
class PatternSeen:
    pattern: Pattern | None = None
    key: str = ""  # of the failures in it
    counted: int = 0


async def observe(sweep: SweepRecord, seen: Observation, _: SweepClients) -> Observation:
    """Add the pattern, whenever a trial has ended; calls nothing."""
    if sweep.phase not in ACTIVE or sweep.plan is None or sweep.plan.space.seed:
        return seen
    state = sweep.of(FailingParameters)
    causes = state.causes | _causes(seen)
    if not causes:
        return seen
    ended = [t for t in seen.trials if t.state in ENDED]
    if (len(ended), causes) == (state.counted, state.causes):
        return seen
    key = Counter(causes.values()).most_common(1)[0][0]
    is_only = set(causes.values()) == {key}  # then that of trials that weren't diagnosed, too
    rows: list[Row] = []
    for trial in ended:
        failed = trial.state is TrialState.FAILED
        cause = causes.get(trial.name, key if failed and is_only else "")
        if cause == key or not (failed or cause):
            rows.append((trial.parameters, cause == key))
    pattern = await asyncio.to_thread(find_pattern, rows, sweep.plan.space.parameters)
    return seen.put(PatternSeen(pattern=pattern, key=key, counted=len(ended)))


def _diagnosed(seen: Observation) -> list[Diagnosis]:
    return [each for each in seen.trouble if each.lasting and each.trial]


def _causes(seen: Observation) -> dict[str, str]:
    return {each.trial: each.key for each in _diagnosed(seen)}


def _cause(diagnosis: Diagnosis) -> str:
    """Return the rule's words, which fit all trials; of a crash, those of the first one's log."""
    return diagnosis.cause if diagnosis.key.startswith("crash") else diagnosis.text.rstrip(".")


def follow(sweep: SweepRecord, seen: Observation, _: datetime) -> SweepRecord:
    """Report the first pattern; later ones edit its message."""
    found, state = seen.of(PatternSeen), sweep.of(FailingParameters)
    causes = state.causes | _causes(seen)
    if not found.counted and causes == state.causes:
        return sweep
    words = {each.key: _cause(each) for each in reversed(_diagnosed(seen))} | state.words
    state = replace(state, causes=causes, counted=found.counted, words=words)
    if found.pattern is None:
        return sweep.put(state)
    is_first = state.pattern is None
    sweep = sweep.put(replace(state, pattern=found.pattern, cause=words.get(found.key, state.cause)))
    return sweep.enqueue(Event(kind=KIND, text=_text(sweep))) if is_first else sweep


def message(sweep: SweepRecord) -> Message | None:
    pattern = sweep.of(FailingParameters).pattern
    if pattern is None:
        return None
    is_one = len(pattern.conditions) == 1  # else each button leaves one side of the pair out
    ways = [way for each in pattern.conditions if (way := _way(sweep, each, named=not is_one))]
    buttons = [actions(continue_button(sweep.id, *way)) for way in ways]  # Slack: an action_id once per block
    text = _text(sweep)
    return Message(text=text, blocks=(section(text), *buttons) if buttons else ())


def _text(sweep: SweepRecord) -> str:
    state = sweep.of(FailingParameters)
    pattern = state.pattern or Pattern()
    those = " and ".join(f"{code(each.name)} {each.sign} {code(each.bound)}" for each in pattern.conditions)
    rest = WORDS[pattern.conditions[0].sign][1] if len(pattern.conditions) == 1 else "others"
    cause = f"{plain(state.cause)}: " if state.cause else ""
    chance = f"1 in {min(int(1 / max(pattern.chance, 1e-9)), 1_000_000):,}"
    return (
        f":warning: {cause}*{pattern.failed} of {pattern.trials}* trials with {those} failed, "
        f"*{pattern.failed_others} of {pattern.others}* {rest}. By chance, this is rarer than {chance}."
    )


def _way(sweep: SweepRecord, one: Condition, *, named: bool) -> tuple[str, str] | None:
    """Return the button's words and the constraint that leaves these values out; None if they need quotes,
    or are too many.
    """
    bounds = one.bound.split(" or ")
    if not all(map(TYPED.fullmatch, [one.name, *bounds])):
        return None
    left_out = [f"{one.name}{OPPOSITE[one.sign]}{bound}" for bound in bounds]
    name = f"with {one.name} " if named and one.sign != "=" else ""
    words = f"Continue {name}{WORDS[one.sign][0]} {', '.join(bounds)}"
    where = ",".join(filter(None, (sweep.request.where, *left_out)))
    return (words, where) if where.count(",") < MAX_CONDITIONS else None


FEATURE = Feature(
    name="failing_parameters",
    states=(FailingParameters,),
    observe=observe,
    steps=(Step(at=Moment.PROBLEMS, decide=follow),),
    live_message={KIND: LiveMessage.of(FailingParameters, message)},
)
