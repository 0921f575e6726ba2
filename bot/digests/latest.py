"""Each channel's latest digest, kept in Redis for the home tab and `/gpus digest`."""

from dataclasses import dataclass
from datetime import date

from pydantic import TypeAdapter
from redis.asyncio import Redis

from bot.gpus.hourly_store import RETENTION


@dataclass(frozen=True, kw_only=True)
class Last:
    day: date
    headline: str  # plain text
    link: str


_LAST: TypeAdapter[Last] = TypeAdapter(Last)


async def last(redis: Redis, channel: str) -> Last | None:
    """Return the channel's latest digest; None if none was posted within 40 days."""
    found = await redis.get(_key(channel))
    return _LAST.validate_json(found) if found else None


async def save_last(redis: Redis, channel: str, digest: Last) -> None:
    await redis.set(_key(channel), _LAST.dump_json(digest), ex=RETENTION)


def _key(channel: str) -> str:
    return f"sweepbot:digest:{channel}"
