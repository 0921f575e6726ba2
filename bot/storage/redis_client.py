"""Redis clients whose calls can be cancelled at any moment."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AuthenticationError, RedisError

from bot.core.errors import UserError

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


def connect(url: str, **options: Any) -> Redis:
    """Return Redis.from_url(url, **options) with calls that never lose a cancellation.

    redis-py sends with asyncio.wait_for, which on Python 3.11 swallows a cancellation that arrives just as
    the call succeeds (https://github.com/python/cpython/issues/86296): a loop of calls would never end.
    """
    redis = Redis.from_url(url, **options)
    pool = redis.connection_pool
    pool.connection_class = _cancellable(pool.connection_class)
    return redis


async def wait_until_reachable(redis: Redis, stop: asyncio.Event) -> bool:
    """Return True once Redis answers, False if `stop` is set first. Raises UserError on a rejected login.

    A process that exits instead would be restarted by Kubernetes with delays of up to 5 min
    (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy).
    """
    logged = False
    while not stop.is_set():
        try:
            await redis.ping()
        except AuthenticationError:
            raise UserError("REDIS_URL: Redis rejected the login.") from None
        except (RedisError, TimeoutError) as error:
            if not logged:
                log.warning("waiting for Redis: %s", error)
            logged = True
        else:
            return True
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RETRY_SECONDS)
    return False


class _Cancellable(AbstractConnection):
    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        await super().send_packed_command(command, check_health)
        if task and task.cancelling() > before:
            await self.disconnect(nowait=True)  # its reply would be read as that of the next call
            raise asyncio.CancelledError


def _cancellable(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a cancellable subclass of the connection class for the URL: TCP, TLS, or a Unix socket."""
    return type(kind.__name__, (_Cancellable, kind), {})
