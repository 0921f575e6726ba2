"""Report that a sweep waits for nodes before its trials start. Pure."""

from dataclasses import replace
from datetime import datetime

from bot.core.events import Event, EventKind
from bot.core.gangs import CHECKING, waits_for_nodes
from bot.core.record import SweepRecord
from bot.lifecycle.observation import Observation


def follow_start(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Update the parent message's line, and report each wait in the thread once.

    The wait of a resumed or extended sweep doesn't count toward `max_hours`.
    """
    why, key = seen.start_wait if waits_for_nodes(sweep) else "", str(EventKind.START_WAITING)
    if why == sweep.start_wait:
        return sweep
    if not why:
        deadline = sweep.deadline and sweep.deadline + (now - sweep.since)
        others = tuple(each for each in sweep.sent_keys if each != key)
        return replace(sweep, start_wait="", deadline=deadline, sent_keys=others)
    sweep = replace(sweep, start_wait=why)
    if why == CHECKING or key in sweep.sent_keys:
        return sweep
    event = Event(kind=EventKind.START_WAITING, text=why)
    return sweep.enqueue(event, sent_keys=(*sweep.sent_keys, key))
