"""Store the last failed call of each work item to each service, for operators.

errors:<item>   hash: service -> milliseconds since 1970, a space, and the error; a day after the last one
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.errors import RetryAfterError
from bot.core.metrics import Failures, one_line, remembering_failures
from bot.platform.storage.work_queue import Lease, text
from bot.text.masking import Mask

log = logging.getLogger(__name__)

KEEP = timedelta(days=1)
Handler = Callable[[Lease], Awaitable[timedelta | None]]


@dataclass(frozen=True)
class LastError:
    service: str  # of the call; "work" for any other error of the item
    at: datetime
    text: str


class LastErrors:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

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
        return f"sweepbot:errors:{item}"


def _parsed(stored: Mapping[Any, Any]) -> tuple[LastError, ...]:
    found = []
    for service, value in stored.items():
        when, _, error = text(value).partition(" ")
        found.append(LastError(text(service), datetime.fromtimestamp(int(when) / 1000, UTC), error))
    return tuple(sorted(found, key=lambda each: each.at, reverse=True))


def remembering(handler: Handler, errors: LastErrors, mask: Mask, now: Callable[[], datetime]) -> Handler:
    """Return the handler with its failures stored; a run without any costs no call."""

    async def handle(lease: Lease) -> timedelta | None:
        with remembering_failures() as failures:
            try:
                return await handler(lease)
            except RetryAfterError:
                raise
            except Exception as error:
                _add(failures, error)
                raise
            finally:
                if failures:
                    await _save(str(lease.item), failures)

    async def _save(item: str, failures: Failures) -> None:
        try:
            await errors.save(item, {service: mask(text) for service, text in failures.items()}, now())
        except RedisError as error:
            log.debug("can't store the last errors of %s: %s", item, error)

    return handle


def _add(failures: Failures, error: Exception) -> None:
    """Add an error that isn't a failed call's: a bug, or a rejected save."""
    text = one_line(str(error) or type(error).__name__)
    if not any(text in known or known in text for known in failures.values()):
        failures["work"] = text
