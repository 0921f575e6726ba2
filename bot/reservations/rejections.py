"""Notify an admin, once, that the cluster rejects the placeholders of their reservation.

The ConfigMap of the reservations keeps who was notified, under keys of their own: a release at the same time
is never overwritten.
"""

import logging
from collections.abc import Iterable, Mapping

from slack_sdk.errors import SlackApiError

from bot.clients import Clients
from bot.reservations.models import REJECTED, Reservation, manifest_of
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.slack.mrkdwn import code, quoted
from bot.text.wording import counted
from k8s.api.errors import ApiError
from k8s.configmaps import upsert

log = logging.getLogger(__name__)

MAX_REASON = 300  # characters


def rejection_text(one: Reservation, reason: str) -> str:
    """Return what went wrong, and the fix."""
    gpus, where = counted(one.gpus, "GPU"), code(one.namespace)
    return (
        f":warning: {gpus} of reservation {code(one.id)} (team {one.team}) can't be held: the cluster "
        f"rejects placeholders in namespace {where}.\n> {quoted(reason)}\n"
        "*Fix:* Allow Jobs with the label `sweepbot/reservation` there. `/sweep doctor` checks the "
        "permissions. Sweepbot tries again every 30 s."
    )


async def report_rejections(
    known: Iterable[Reservation], notified: Mapping[str, str], error: ApiError | None, clients: Clients
) -> None:
    """Notify who made these reservations of one namespace; `error` is None if it accepts them.

    Raises ApiError, UnreachableError.
    """
    reason = clients.mask(error.message)[:MAX_REASON] if error else ""
    changes: dict[str, str | None] = {}
    for one in known:
        is_new = bool(reason) and one.active(clients.now()) and one.id not in notified
        if is_new and await _notified(one, reason, clients):
            changes[REJECTED + one.id] = reason
        elif not reason and one.id in notified:
            changes[REJECTED + one.id] = None
    if changes:
        await upsert(clients.cluster, manifest_of(clients.settings.k8s_namespace, changes))


async def _notified(one: Reservation, reason: str, clients: Clients) -> bool:
    """Return False if Slack can accept the message later."""
    try:
        await clients.slack.post_ephemeral(one.by, rejection_text(one, reason))
    except (NotInChannelError, MessageRejectedError) as error:
        log.warning("can't notify %s about reservation %s: %s", one.by, one.id, error)
    except SlackApiError as error:
        log.warning("can't notify %s about reservation %s yet: %s", one.by, one.id, error)
        return False
    return True
