"""Elect one worker as leader by a lease in Redis, for work that only one of them should do.

The lease saves load, but excludes nothing: a leader that was paused can continue late. So work under this
lease must be harmless if two workers do it at once.
"""

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.metrics import LEADER
from bot.platform.storage.work_queue import LeaseLostError, renewing

log = logging.getLogger(__name__)

_RENEW = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0"
_RELEASE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"


async def lead(redis: Redis, name: str, ttl: float, body: Callable[[], Awaitable[None]]) -> None:
    """Run `body` while this process holds the lease `name`; return when `body` returns.

    If the lease is lost, cancel `body` and wait for the lease again. When `body` ends, fails, or is
    cancelled, release the lease at once. While Redis is unreachable, keep trying.

    Args:
        name: the key in Redis.
        ttl: seconds until a lease expires that isn't renewed.
    """
    token = uuid.uuid4().hex
    renew, release = redis.register_script(_RENEW), redis.register_script(_RELEASE)
    LEADER.labels(name).set(0)
    while True:
        try:
            await _acquire(redis, name, token, ttl)
            async with renewing(ttl, lambda: renew([name], [token, round(ttl * 1000)])):
                LEADER.labels(name).set(1)
                return await body()
        except LeaseLostError:
            log.warning("lost the lease %s; another worker takes over", name)
        finally:
            LEADER.labels(name).set(0)
            # also if cancelled while acquiring: Redis may have granted it
            await _release(lambda: release([name], [token]))


async def _acquire(redis: Redis, name: str, token: str, ttl: float) -> None:
    reachable = True
    while True:
        try:
            if await redis.set(name, token, nx=True, px=round(ttl * 1000)):
                return
            reachable = True
        except RedisError as error:
            if reachable:
                log.warning("can't acquire the lease %s: %s", name, error)
            reachable = False
        await asyncio.sleep(ttl / 3 * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load, guards nothing


async def _release(release: Callable[[], Awaitable[object]]) -> None:
    """Release the lease; if Redis doesn't respond within a second, it expires by itself."""
    try:
        async with asyncio.timeout(1):
            await release()
    except (RedisError, TimeoutError):
        log.debug("can't release a lease; it expires")
