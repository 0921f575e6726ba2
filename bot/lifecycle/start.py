"""Report that a sweep waits with the submission of its experiment. Pure."""

from dataclasses import replace

from bot.core.events import Event, EventKind
from bot.core.record import SweepRecord
from bot.lifecycle.observation import Observation


def follow_start(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    """Update the parent message's line, and report the wait in the thread once."""
    why, key = "" if sweep.submitted else seen.start_wait, str(EventKind.START_WAITING)
    if why == sweep.start_wait:
        return sweep
    sweep = replace(sweep, start_wait=why)
    if not why or key in sweep.sent_keys:
        return sweep
    event = Event(kind=EventKind.START_WAITING, text=why)
    return sweep.enqueue(event, sent_keys=(*sweep.sent_keys, key))
