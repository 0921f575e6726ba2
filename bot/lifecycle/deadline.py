"""The time limit of a whole sweep, `max_hours`: after it no new trials start, running ones finish. Pure.

It starts with the first trial, so the build and the wait for the first GPUs don't count. Neither does a pause
(`bot.lifecycle.pause`), nor a wait for nodes after it (`bot.lifecycle.start`).
"""

from dataclasses import replace
from datetime import datetime, timedelta

from bot.core.events import Event, EventKind
from bot.core.record import Phase, SweepRecord


def start_clock(sweep: SweepRecord, now: datetime) -> SweepRecord:
    """Set the deadline when the first trial runs."""
    hours = sweep.plan.space.max_hours if sweep.plan else None
    return replace(sweep, deadline=now + timedelta(hours=hours)) if hours and not sweep.deadline else sweep


def out_of_time(sweep: SweepRecord, now: datetime) -> SweepRecord:
    """Drain the sweep once its deadline has passed."""
    if not sweep.deadline or now < sweep.deadline or _is_stopped(sweep):
        return sweep
    return sweep.enqueue(Event(kind=EventKind.DRAINING), out_of_time=True)


def time_left(sweep: SweepRecord, now: datetime) -> timedelta | None:
    """Return the time until the deadline; None if there is none or it has passed."""
    if sweep.phase is not Phase.RUNNING or not sweep.deadline or _is_stopped(sweep):
        return None
    return max(sweep.deadline - now, timedelta(seconds=1))


def _is_stopped(sweep: SweepRecord) -> bool:
    return sweep.draining or bool(sweep.paused_at or sweep.start_wait)
