"""Decide which changes need a direct read of the API server; the caches are a little behind it. Pure.

Counts, better results, and diagnoses can come from caches. A change of phase needs a direct read: otherwise a
sweep could fail because the caches don't have its experiment yet, or be reported as cancelled while a pod is
left. So do patches, deletions, and messages that a trial's GPUs are released. Creating an object doesn't: the
API server rejects it if it exists. Composing an image doesn't either: its parts were read from the registry.
"""

from dataclasses import replace
from datetime import datetime

from bot.core.record import SweepRecord
from bot.lifecycle.observation import Observation
from bot.lifecycle.required_changes import RequiredChanges, required_changes

DECISIONS = (  # fields of the record
    "phase",
    "to_kill",
    "ending_early",
    "restarted",
    "extending",
    "paused_at",
    "resuming",
)


def needs_fresh_read(before: SweepRecord, after: SweepRecord, seen: Observation, now: datetime) -> bool:
    """Return whether `after`, or the changes in the cluster that it requires, need a direct read."""
    decided = any(getattr(after, name) != getattr(before, name) for name in DECISIONS)
    # The record was saved from newer caches of another worker: finished trials don't run again.
    outdated = after.progress.finished < before.progress.finished
    changes = replace(required_changes(after, seen, now), create=(), compose=None)
    return decided or outdated or changes != RequiredChanges()
