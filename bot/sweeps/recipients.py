"""Decide whose attention a message calls for. Pure."""

from bot.core.events import Event, EventKind, HealthStatus
from bot.core.record import SweepRecord
from bot.core.request import Notify
from bot.slack.mrkdwn import mention

# What the owner is called for; the health of a first trial besides, once it is a failure.
ENDS = {EventKind.SUCCEEDED, EventKind.FAILED, EventKind.CANCELLED, EventKind.FIRST_FAILED}


def is_loud(sweep: SweepRecord, happened: Event) -> bool:
    """For the whole channel, with the owner's name: a first trial that failed, and the end."""
    failed = sweep.health is not None and sweep.health.status is HealthStatus.FAILED
    loud = happened.kind in ENDS or (happened.kind is EventKind.HEALTH and failed)
    own = happened.kind is EventKind.CANCELLED and sweep.cancelled_by == sweep.requester.user
    return loud and not own and not happened.to_user and sweep.request.notify is Notify.CHANNEL


def with_owner(sweep: SweepRecord, text: str) -> str:
    emoji, _, rest = text.partition(" ")
    return f"{emoji} {mention(sweep.requester.user)} {rest}"
