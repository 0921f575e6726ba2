"""Compose and run the processes serve, work, and all: their start, with Redis and Slack's tokens, and in
which order SIGTERM stops them.

SIGTERM stops a process in this order: /readyz fails; the resync lease and the Slack socket are released; no
work item is taken; running ones have SHUTDOWN_GRACE seconds to finish, then other workers get them; the
HTTP server stops last.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from aiohttp import ClientError
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.core import metrics
from bot.core.errors import UserError
from bot.platform.config.live_policy import LivePolicy
from bot.platform.config.settings import Settings
from bot.platform.runtime.probes import Probes
from bot.platform.runtime.tracing import start_tracing
from bot.platform.slack.client import error_code
from bot.platform.storage.queue_state import Figures
from bot.platform.storage.redis_client import connect, wait_until_writable
from handlers.http_server import Http, served

log = logging.getLogger(__name__)

CLEANUP_TIMEOUT = 5.0  # seconds to release leases and connections, after the grace period


@dataclass(frozen=True, kw_only=True)
class Process:
    settings: Settings
    policy: LivePolicy
    redis: Redis
    probes: Probes
    http: Http
    stop: asyncio.Event


Answer = TypeVar("Answer")
Job = Callable[[Process], Awaitable[None]]


async def run(jobs: tuple[Job, ...], settings: Settings, policy: LivePolicy) -> None:
    """Run until SIGTERM or SIGINT. A failed job ends the process; Kubernetes restarts it."""
    stop = asyncio.Event()

    def on_signal() -> None:
        stop.set()
        _exit_after(settings.shutdown_grace + CLEANUP_TIMEOUT + 1)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    async with AsyncExitStack() as stack:
        # After a restart of Redis, pooled connections are dead. All calls are safe to repeat once.
        retry = Retry(NoBackoff(), 1)
        redis = await stack.enter_async_context(connect(settings.redis_url, retry=retry))
        stack.push_async_callback(asyncio.to_thread, start_tracing(os.environ, settings.mask))
        if settings.runbook_url:
            metrics.RUNBOOK.labels(settings.runbook_url).set(1)
        probes = Probes(stop.is_set, settings.mask)
        stack.push_async_callback(probes.close)
        probes.expect(len(jobs))
        http = Http(probes, Figures(redis).refresh)
        port = await stack.enter_async_context(served(http, settings.http_host, settings.http_port))
        log.info("serving /healthz and /readyz on port %d", port)
        probes.check("redis", partial(_redis, redis))
        process = Process(settings=settings, policy=policy, redis=redis, probes=probes, http=http, stop=stop)
        stack.callback(asyncio.create_task(policy.follow()).cancel)
        if await wait_until_writable(redis, stop):
            await _live([asyncio.ensure_future(job(process)) for job in jobs], stop, settings.shutdown_grace)
    log.info("stopped")


async def _live(jobs: list[asyncio.Future[None]], stop: asyncio.Event, grace: float) -> None:
    for job in jobs:
        job.add_done_callback(lambda _: stop.set())
    await stop.wait()
    log.info("stopping within %g s", grace)
    _, late = await asyncio.wait(jobs, timeout=grace)
    for job in late:
        job.cancel()
    if late:
        await asyncio.wait(late, timeout=CLEANUP_TIMEOUT)
    for job in jobs:
        if job.done() and not job.cancelled():
            job.result()


def _exit_after(seconds: float) -> None:
    """Exit after `seconds` in any case: a thread can hang in a call, such as a DNS lookup."""
    timer = threading.Timer(seconds, os._exit, [0])
    timer.daemon = True
    timer.start()


async def accepted(token: str, call: Awaitable[Answer]) -> Answer:
    """Make the first call with a token, and return its answer. Raises UserError if that fails."""
    try:
        return await call
    except SlackApiError as error:
        raise UserError(f"{token}: Slack answered {error_code(error)}.") from None
    except (ClientError, TimeoutError) as error:
        raise UserError(f"Slack can't be reached: {str(error) or 'no answer'}. Allow HTTPS to it.") from None


async def _redis(redis: Redis) -> str:
    await redis.ping()
    return "ok"


async def slack_identity(web: AsyncWebClient) -> str:
    return f"user {(await web.auth_test())['user']}"


def now() -> datetime:
    return datetime.now(UTC)
