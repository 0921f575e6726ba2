"""Everything that somebody did or set up, or was refused, is a line in the log: `sweepbot.audit`."""

import logging

from bot.core.commands import AuditEntry
from bot.core.record import SweepRecord

audit = logging.getLogger("sweepbot.audit")


def write_new_entries(before: SweepRecord, after: SweepRecord) -> None:
    """Before they are saved: a line may come twice, none is missing."""
    for entry in after.audit_log:
        if entry not in before.audit_log:
            tell(after.id, entry)


def tell(sweep: str, entry: AuditEntry) -> None:
    answer = f"refused: {entry.refused}" if entry.refused else "allowed"
    about = f" ({entry.about})" if entry.about else ""
    audit.info("%s wants to %s %s%s: %s", entry.user, entry.action, sweep or "a sweep", about, answer)
