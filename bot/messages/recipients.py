"""Decide whether a message goes to the whole channel and mentions the sweep's owner. Pure."""

from bot.core.events import Event, EventKind, HealthStatus
from bot.core.record import SweepRecord
from bot.core.request import Notify
from bot.messages.start import never_fits
from bot.slack.mrkdwn import mention

# Events that mention the owner; so does the first trials' message once it is a failure.
MENTIONING = {
    EventKind.SUCCEEDED,
    EventKind.FAILED,
    EventKind.CANCELLED,
    EventKind.FIRST_FAILED,
    EventKind.SEARCH_LOST,
}


def is_loud(sweep: SweepRecord, event: Event) -> bool:
    """Return whether the whole channel sees the event: a failed first trial or one that can't fit, a lost
    search, and the end.
    """
    failed = sweep.health is not None and sweep.health.status is HealthStatus.FAILED
    lasting = failed or never_fits(sweep)
    loud = event.kind in MENTIONING or (event.kind is EventKind.HEALTH and lasting)
    own = event.kind is EventKind.CANCELLED and sweep.cancelled_by == sweep.requester.user
    return loud and not own and not event.to_user and sweep.request.notify is Notify.CHANNEL


def with_owner(sweep: SweepRecord, text: str) -> str:
    """Mention the owner after the emoji that `text` begins with."""
    emoji, _, rest = text.partition(" ")
    return f"{emoji} {mention(sweep.requester.user)} {rest}"
