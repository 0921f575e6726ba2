"""Report that Katib starts no more trials, because its suggestion service lost the search. Pure."""

from bot.core.events import Event, EventKind
from bot.core.record import SweepRecord
from bot.lifecycle.observation import Observation


def follow_search(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    """Report it once for each experiment. A sweep that starts no more trials anyway needs no report."""
    key = f"{EventKind.SEARCH_LOST}/{sweep.attempt}"
    if not seen.search_lost or sweep.draining or sweep.paused_at or key in sweep.sent_keys:
        return sweep
    return sweep.enqueue(Event(kind=EventKind.SEARCH_LOST), sent_keys=(*sweep.sent_keys, key))
