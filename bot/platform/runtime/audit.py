"""Log every command, setup, and denial, with the user: logger `sweepbot.audit`."""

import logging

from bot.core.commands import AuditEntry
from bot.core.record import SweepRecord

audit = logging.getLogger("sweepbot.audit")


def write_new_entries(before: SweepRecord, after: SweepRecord) -> None:
    """Call this before the record is saved: a crash can then repeat a line, but not lose one.

    If the save is rejected because another sweep used the limit, `write_checked_again` follows.
    """
    for entry in after.audit_log:
        if entry not in before.audit_log:
            write_entry(after.id, entry)


def write_checked_again(sweep: str) -> None:
    """Log that the line before this one doesn't hold: the command is checked again, and gets a line again."""
    audit.info("sweep=%s: checked again: another sweep was checked against the same limit meanwhile", sweep)


def write_entry(sweep: str, entry: AuditEntry) -> None:
    result = f"denied: {entry.refused}" if entry.refused else "allowed"
    about = f" ({entry.about})" if entry.about else ""
    audit.info(
        "user=%s%s action=%s sweep=%s%s: %s",
        entry.user,
        f" via={entry.via}" if entry.via else "",
        entry.action.name.lower(),
        sweep or "new",
        about,
        result,
    )
