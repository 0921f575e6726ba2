"""What all tests share: a real Redis (Valkey) of their own, and waiting for facts."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from inspect import isawaitable
from typing import Any

import pytest
from redis.asyncio import Redis

from bot.redis import connect
from local.redis import redis as server

WaitUntil = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """One server for this test run, on a free port of 127.0.0.1."""
    # A terminated run has to end as an interrupted one does, or the server would outlive it.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with server() as url:
            yield url
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client of an empty Redis, emptied again afterwards."""
    async with connect(redis_url) as client:
        yield client
        await client.flushall()


@pytest.fixture
async def no_litter(redis: Redis) -> AsyncIterator[None]:
    """Fails a test which leaves keys in Redis that would stay for ever."""
    yield
    left = [key.decode() async for key in redis.scan_iter() if await redis.ttl(key) == -1]
    assert not left, f"left in Redis for ever: {left}"


@pytest.fixture
def wait_until() -> WaitUntil:
    """`await wait_until(fact, "what the fact is")`: poll until it is true, give up after a minute.

    Long enough for a machine that stands still for a while.
    """

    async def wait(fact: Callable[[], Any], what: str, *, seconds: float = 60) -> Any:
        try:
            async with asyncio.timeout(seconds):
                while not (found := await _value(fact)):  # noqa: ASYNC110 - facts of other processes, too
                    await asyncio.sleep(0.005)
                return found
        except TimeoutError:
            pytest.fail(f"waited {seconds} s in vain until {what}")

    return wait


async def _value(fact: Callable[[], Any]) -> Any:
    value = fact()
    return await value if isawaitable(value) else value
