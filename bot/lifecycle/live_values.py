"""Show what running trials report, and how long the sweep still takes. Pure."""

import math
from dataclasses import replace
from datetime import datetime

from bot.core.events import Event, EventKind, LiveResult
from bot.core.record import SweepRecord
from bot.core.space import Goal
from bot.lifecycle.observation import Observation
from bot.lifecycle.time_left import minutes_left


def follow_live(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Add the best running trial and the time left; report once that MLflow is unavailable."""
    left = minutes_left(sweep, sweep.progress, seen, now)
    sweep = replace(sweep, progress=replace(sweep.progress, live=_best(sweep, seen), minutes_left=left))
    if seen.reading is None or not seen.reading.is_away or EventKind.NO_LIVE_VALUES in sweep.sent_keys:
        return sweep
    sent = (*sweep.sent_keys, EventKind.NO_LIVE_VALUES)
    return sweep.enqueue(Event(kind=EventKind.NO_LIVE_VALUES), sent_keys=sent)


def _best(sweep: SweepRecord, seen: Observation) -> LiveResult | None:
    """Return the running trial whose last value is the best; None if MLflow has none, or doesn't answer."""
    if sweep.plan is None or sweep.plan.space.seed or seen.reading is None or seen.reading.failures:
        return None
    sign = -1 if sweep.plan.space.goal is Goal.MAXIMIZE else 1
    latest = {name: seen.reading.latest[name] for name in seen.running if name in seen.reading.latest}
    finite = [(sign * point.value, name) for name, point in latest.items() if math.isfinite(point.value)]
    if not finite:
        return None
    _, name = min(finite)
    return LiveResult(trial=name, value=latest[name].value, step=latest[name].step)
