"""A cancelled call to Redis ends, whenever the cancellation comes, and the next one gets its own answer."""

import asyncio

import pytest
from redis.asyncio import Connection, Redis, SSLConnection, UnixDomainSocketConnection

from bot.storage.redis_client import connect


async def test_a_cancellation_at_the_moment_of_success_is_not_lost(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await redis.mset({"a": "1", "b": "2"})
    send = Connection._send_packed_command

    async def sent_and_cancelled(self: Connection, command: list[bytes]) -> None:
        await send(self, command)
        task.cancel()

    monkeypatch.setattr(Connection, "_send_packed_command", sent_and_cancelled)
    task = asyncio.create_task(redis.get("a"))
    with pytest.raises(asyncio.CancelledError):
        await task
    monkeypatch.undo()
    assert await redis.get("b") == b"2"


async def test_who_is_cancelled_may_still_clean_up(redis: Redis) -> None:
    async def works() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await redis.set("left", "tidy")

    task = asyncio.create_task(works())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert await redis.get("left") == b"tidy"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://r:6379/1", Connection),
        ("rediss://r:6379", SSLConnection),
        ("unix:///run/redis.sock", UnixDomainSocketConnection),
    ],
)
def test_the_address_says_how_to_connect(url: str, kind: type) -> None:
    assert isinstance(connect(url).connection_pool.make_connection(), kind)
