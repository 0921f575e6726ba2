"""Store the last failed call of each work item to each service, for operators.

errors:<item>   hash: service -> milliseconds since 1970, a space, and the error; a day after the last one
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from bot.storage.work_queue import text

KEEP = timedelta(days=1)


@dataclass(frozen=True)
class LastError:
    service: str  # of the call; "work" for any other error of the item
    at: datetime
    text: str


class LastErrors:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, prefix: str = "sweepbot:errors") -> None:
        self._redis, self._prefix = redis, prefix

    async def save(self, item: str, errors: Mapping[str, str], at: datetime) -> None:
        """Store these errors, by service, in the place of earlier ones."""
        when = round(at.timestamp() * 1000)
        found: dict[Any, Any] = {service: f"{when} {error}" for service, error in errors.items()}
        async with self._redis.pipeline(transaction=True) as steps:
            steps.hset(self._key(item), mapping=found)
            steps.expire(self._key(item), KEEP)
            await steps.execute()

    async def of(self, item: str) -> tuple[LastError, ...]:
        """Return the errors of one item, the latest first."""
        [found] = await self.of_all([item])
        return found

    async def of_all(self, items: Iterable[str]) -> list[tuple[LastError, ...]]:
        """Return the errors of each item, the latest first, in one round trip."""
        async with self._redis.pipeline(transaction=False) as reads:
            for item in items:
                reads.hgetall(self._key(item))
            return [_parsed(each) for each in await reads.execute()]

    def _key(self, item: str) -> str:
        return f"{self._prefix}:{item}"


def _parsed(stored: Mapping[Any, Any]) -> tuple[LastError, ...]:
    found = []
    for service, value in stored.items():
        when, _, error = text(value).partition(" ")
        found.append(LastError(text(service), datetime.fromtimestamp(int(when) / 1000, UTC), error))
    return tuple(sorted(found, key=lambda each: each.at, reverse=True))
