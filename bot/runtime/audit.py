"""Log every command, setup, and denial, with the user: logger `sweepbot.audit`."""

import logging

from bot.core.commands import AuditEntry
from bot.core.record import SweepRecord

audit = logging.getLogger("sweepbot.audit")


def write_new_entries(before: SweepRecord, after: SweepRecord) -> None:
    """Call this before the record is saved: a crash can then repeat a line, but not lose one."""
    for entry in after.audit_log:
        if entry not in before.audit_log:
            write_entry(after.id, entry)


def write_entry(sweep: str, entry: AuditEntry) -> None:
    result = f"denied: {entry.refused}" if entry.refused else "allowed"
    about = f" ({entry.about})" if entry.about else ""
    audit.info(
        "user=%s action=%s sweep=%s%s: %s",
        entry.user,
        entry.action.name.lower(),
        sweep or "new",
        about,
        result,
    )
