"""Store reservations, and notes about rejected placeholders, in the ConfigMap `sweepbot-reservations`; notify
who made a reservation that can't be held.

Both have entries of their own: a note about a rejection never overwrites a release at the same time.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slack_sdk.errors import SlackApiError

from bot.core.stored_format import late_adapter
from bot.platform.clients import Clients
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.mrkdwn import code, quoted
from bot.platform.storage.configmaps import ConfigMapStore
from bot.text.wording import counted
from bot.workspaces.reservations.models import Reservation
from k8s.api.errors import ApiError

log = logging.getLogger(__name__)

CONFIGMAP_NAME = "sweepbot-reservations"
REJECTED = "rejected."  # prefix of the keys of the notes
MAX_REASON = 300  # characters

_RESERVATION = late_adapter(Reservation)


@dataclass(frozen=True)
class Stored:
    reservations: tuple[Reservation, ...]  # the first to end first
    rejections: Mapping[str, str]  # why the cluster rejects placeholders, by the ID of their reservation


class ReservationStore:
    """Methods raise ApiError and UnreachableError."""

    def __init__(self, clients: Clients) -> None:
        where = clients.cluster, clients.settings.k8s_namespace, CONFIGMAP_NAME
        self._reservations, self._notes = ConfigMapStore(*where, _RESERVATION), ConfigMapStore[str](*where)

    async def read(self) -> Stored:
        """Leave out reservations in another version's format."""
        found = await self._reservations.read()
        known = sorted(found.values.values(), key=lambda one: (one.until, one.id))
        notes = {k.removeprefix(REJECTED): text for k, text in found.texts.items() if k.startswith(REJECTED)}
        return Stored(tuple(known), notes)

    async def save(self, one: Reservation) -> None:
        """Store one reservation; others are untouched."""
        await self._reservations.write({one.id: one})

    async def remove(self, name: str) -> None:
        await self._notes.write({name: None, REJECTED + name: None})

    async def note_rejections(self, reasons: Mapping[str, str | None]) -> None:
        """Store why the placeholders of these reservations are rejected; None: they are no longer."""
        if reasons:
            await self._notes.write({REJECTED + name: why for name, why in reasons.items()})


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
            changes[one.id] = reason
        elif not reason and one.id in notified:
            changes[one.id] = None
    await ReservationStore(clients).note_rejections(changes)


async def _notified(one: Reservation, reason: str, clients: Clients) -> bool:
    """Return False if Slack can accept the message later."""
    try:
        await clients.slack.notify(one.by, rejection_text(one, reason))
    except (NotInChannelError, MessageRejectedError) as error:
        log.warning("can't notify %s about reservation %s: %s", one.by, one.id, error)
    except SlackApiError as error:
        log.warning("can't notify %s about reservation %s yet: %s", one.by, one.id, error)
        return False
    return True
