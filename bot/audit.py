"""Everything that somebody did or set up, or was refused, is a line in the log: `sweepbot.audit`."""

import logging

from bot.models import Deed, SweepRecord

audit = logging.getLogger("sweepbot.audit")


def tell_new(before: SweepRecord, after: SweepRecord) -> None:
    """Before they are saved: a line may come twice, none is missing."""
    for deed in after.history:
        if deed not in before.history:
            tell(after.id, deed)


def tell(sweep: str, deed: Deed) -> None:
    answer = f"refused: {deed.refused}" if deed.refused else "allowed"
    about = f" ({deed.about})" if deed.about else ""
    audit.info("%s wants to %s %s%s: %s", deed.user, deed.act, sweep or "a sweep", about, answer)
