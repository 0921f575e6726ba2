"""Whether people are still in the channel of their token: Slack is asked about one at most once an hour.

About a person who isn't among the last known members, it is asked again after a minute: they can have joined.
"""

import asyncio
import logging
from dataclasses import dataclass
from time import monotonic

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.slack.client import error_code
from handlers.context import SLACK_ERRORS
from handlers.middleware import SLACK_TIMEOUT

log = logging.getLogger(__name__)

TTL, ABSENT_TTL = 3600.0, 60.0  # seconds; Slack allows 100 calls of conversations.members a minute
PAGE, MAX_PAGES = 999, 20  # members in one answer, the most that Slack gives; answers for one channel
MAX_CACHED = 1_000  # channels
GONE = {"channel_not_found"}  # a deleted channel, or a private one without the app: no thread can open there


@dataclass(frozen=True)
class _Known:
    members: frozenset[str] | None  # None: unknown
    at: float

    def has(self, user: str) -> bool:
        return self.members is None or user in self.members


class Members:
    def __init__(self, web: AsyncWebClient) -> None:
        self._web = web
        self._known: dict[str, _Known] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}

    async def has(self, channel: str, user: str) -> bool:
        """Return whether the channel has this member; True as long as Slack has never said it.

        A large channel, or a slow Slack, makes no caller wait longer than for one call.
        """
        known = self._known.get(channel)
        if known is None or monotonic() - known.at > (TTL if known.has(user) else ABSENT_TTL):
            if channel not in self._reading:
                self._reading[channel] = asyncio.create_task(self._read(channel))
            await asyncio.wait([self._reading[channel]], timeout=SLACK_TIMEOUT)
            known = self._known.get(channel)
        return known is None or known.has(user)

    async def _read(self, channel: str) -> None:
        before = self._known.get(channel)
        found = before.members if before else None
        try:
            found = await self._members(channel)
        except SlackApiError as error:
            if error_code(error) in GONE:
                found = frozenset()
            log.warning("can't read the members of %s: %s", channel, error_code(error))
        except SLACK_ERRORS as error:
            log.warning("can't read the members of %s: %r", channel, error)
        finally:
            del self._reading[channel]
        if len(self._known) >= MAX_CACHED:
            self._known.clear()
        self._known[channel] = _Known(found, monotonic())

    async def _members(self, channel: str) -> frozenset[str] | None:
        """Return the members; None if there are too many to ask for. Raises SLACK_ERRORS."""
        found: set[str] = set()
        cursor = ""
        for _ in range(MAX_PAGES):
            answer = await self._web.conversations_members(channel=channel, limit=PAGE, cursor=cursor)
            found |= {*answer["members"]}
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return frozenset(found)
        return None
