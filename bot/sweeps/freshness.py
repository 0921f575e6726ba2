"""Decide what can follow from memory, which is a little behind the API server, and what needs a direct read.

Counts, better results, and diagnoses follow from memory. A direct read precedes each change of phase: a sweep
never ends because its experiment was not yet shown, nor is reported as cancelled while a pod is left. It also
precedes each patch and deletion, and each message that a trial's GPUs are released. A creation needs none: it
is refused if the object exists. Pure.
"""

from dataclasses import replace
from datetime import datetime

from bot.core.record import SweepRecord
from bot.sweeps.observation import Observation
from bot.sweeps.required_changes import RequiredChanges, required_changes

DECISIONS = ("phase", "to_kill", "restarted", "extending")  # fields of the record


def needs_fresh_read(before: SweepRecord, after: SweepRecord, seen: Observation, now: datetime) -> bool:
    """Return whether `after`, or the changes in the cluster that it requires, must not follow from memory."""
    decided = any(getattr(after, name) != getattr(before, name) for name in DECISIONS)
    # Another worker's memory was further on when the record was saved: trials don't go back to running.
    outdated = after.progress.finished < before.progress.finished
    changes = replace(required_changes(after, seen, now), create=())
    return decided or outdated or changes != RequiredChanges()
