"""Quiet hours: keep what would mention a person, or go to them directly, and send it once when they end.

Kept are lines in Redis, as requests to the person's work item, which runs again at the end. If a worker dies
while it sends them, another one sends them again.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import accumulate
from typing import TYPE_CHECKING

from bot.core.work_item import ItemKind, WorkItem
from bot.platform.config.personal import Personal
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.mrkdwn import MAX_MESSAGE, cut, link
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.text.wording import counted

if TYPE_CHECKING:  # serve has no clients
    from bot.platform.clients import Clients

log = logging.getLogger(__name__)

CHECKED = timedelta(minutes=10)  # when it is looked again, because the hours can be changed
KEPT, REPEATED = timedelta(days=14), timedelta(hours=12)
MAX_LINES, MAX_LINE = 25, 300  # of the message; characters
MAX_SIZE = MAX_MESSAGE - 200  # characters of all lines


def item(user: str) -> WorkItem:
    return WorkItem(ItemKind.QUIET, user)


class QuietHours:
    """What Slack's client asks before it posts. `people`: their settings now."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        people: Callable[[], Mapping[str, Personal]],
        now: Callable[[], datetime],
    ) -> None:
        self._store, self._queue, self._people, self._now = store, queue, people, now

    def name(self, user: str) -> str:
        """Return what stands for a mention of the user now; "" if it can stay."""
        found = self._people().get(user)
        return found.name or "someone" if found and found.quiet_for(self._now()) else ""

    async def keep(self, user: str, text: str, place: str = "", url: str = "") -> None:
        """Keep a message for the user; one that is repeated in its place, once. Raises RedisError."""
        line = cut(text.partition("\n")[0], MAX_LINE).replace("\n", "")
        line += f" ({link(url, 'message')})" if url else ""
        once = sha256(f"{user} {place} {text}".encode()).hexdigest()
        to = item(user)
        await self._store.add_request(
            str(to), line, once=f"quiet/{once}", within=REPEATED, queue=self._queue, ttl=KEPT
        )


async def send(user: str, clients: "Clients") -> timedelta | None:
    """Send what was kept for a person, or return when to look again: the job of their item.

    Raises SlackApiError, SlackBusyError, RedisError.
    """
    to = str(item(user))
    kept = await clients.store.requests(to)
    found = clients.config.people.get(user)
    if kept and found and (left := found.quiet_for(clients.now())):
        return min(left, CHECKED)
    if not kept:
        return None
    lines = [each if isinstance(each, str) else each.decode() for each in kept]
    try:
        await clients.slack.post_ephemeral(user, summary(lines))
    except (MessageRejectedError, NotInChannelError) as error:
        log.warning("can't send %s what was kept in quiet hours: %s", user, error)
    await clients.store.remove_requests(to, kept)
    return None


def summary(lines: list[str]) -> str:
    """Return one message of the lines that fit, the oldest first. Pure."""
    sizes = accumulate(len(each) + len("\n• ") for each in lines[:MAX_LINES])
    shown = lines[: sum(size <= MAX_SIZE for size in sizes)]
    left = len(lines) - len(shown)
    more = [f"and {left} more; each is in its thread"] if left else []
    head = f"{counted(len(lines), 'message')} came in your quiet hours:"
    return "\n".join([head, *(f"• {each}" for each in [*shown, *more])])
