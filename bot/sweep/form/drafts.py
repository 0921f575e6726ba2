"""Store submitted forms by view, and each user's last launch. Losing both only costs people a prefilled form.

draft:<view id>    the values, the request, the user    an hour
last:<user>        the values of the last launch        90 days
"""

from dataclasses import dataclass
from datetime import timedelta

from redis.asyncio import Redis

from bot.core.request import SweepRequest
from bot.core.stored_format import cached, late_adapter
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.storage.sweeps import ExpiringValue
from bot.sweep.form.view import Draft, options_of

DRAFT_TTL, LAST_LAUNCH_TTL = timedelta(hours=1), timedelta(days=90)


@dataclass(frozen=True, kw_only=True)
class SubmittedForm:
    draft: Draft
    request: SweepRequest
    user: str  # Slack user id
    user_name: str
    left: bool = False  # launched or being edited: a late preview must not replace the view


_FILLED = late_adapter(SubmittedForm)
_DRAFT = late_adapter(Draft)


class Drafts:
    """All methods raise RedisError."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def save(self, view_id: str, filled: SubmittedForm) -> None:
        await self._redis.set(_key(view_id), _FILLED.dump_json(filled), ex=DRAFT_TTL)

    async def get(self, view_id: str) -> SubmittedForm | None:
        return cached(_FILLED, await self._redis.get(_key(view_id)))

    async def last(self, user: str) -> Draft | None:
        """Return the values of the user's last launch."""
        return cached(_DRAFT, await self._redis.get(_last_key(user)))


def item(view_id: str) -> WorkItem:
    return WorkItem(ItemKind.PREVIEW, view_id)


def last_launch(user: str, request: SweepRequest, channel: str) -> ExpiringValue:
    """Return what to store for `Drafts.last`: without the earlier points, which are of one sweep."""
    draft = Draft(options=options_of(request), channel=channel, inline=request.text is not None)
    return ExpiringValue(_last_key(user), _DRAFT.dump_json(draft.without("from")), LAST_LAUNCH_TTL)


def _last_key(user: str) -> str:
    return f"sweepbot:last:{user}"


def _key(view_id: str) -> str:
    return f"sweepbot:draft:{view_id}"
