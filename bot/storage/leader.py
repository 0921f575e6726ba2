"""One worker of many does it: a named lease in Redis, for the watch on the cluster.

It spares the API server; it proves nothing. A paused leader may act late, as anybody may, so what is done
under this lease has to be harmless when two do it.
"""

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.storage.work_queue import LeaseLostError, kept

log = logging.getLogger(__name__)

_RENEW = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0"
_LEAVE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"


async def lead(redis: Redis, name: str, ttl: float, body: Callable[[], Awaitable[None]]) -> None:
    """Run `body` whenever this process holds the key `name`, a lease of `ttl` seconds; until `body` ends.

    Lost, the body is cancelled and this stands in line again; ended, failed or cancelled, the lease is given
    up at once. A Redis that can't be reached is waited for.
    """
    token = uuid.uuid4().hex
    renew, leave = redis.register_script(_RENEW), redis.register_script(_LEAVE)
    while True:
        try:
            await _acquired(redis, name, token, ttl)
            async with kept(ttl, lambda: renew([name], [token, round(ttl * 1000)])):
                return await body()
        except LeaseLostError:
            log.warning("lost the lease %s; another worker takes over", name)
        finally:  # also if cancelled while acquiring: Redis may have granted it
            await _given_up(lambda: leave([name], [token]))


async def _acquired(redis: Redis, name: str, token: str, ttl: float) -> None:
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


async def _given_up(leave: Callable[[], Awaitable[object]]) -> None:
    """At best: what can't be given up runs out."""
    try:
        async with asyncio.timeout(1):
            await leave()
    except (RedisError, TimeoutError):
        log.debug("can't release a lease; it expires")
