"""One leader at a time, and always soon another."""

import asyncio

import pytest

from bot.storage.leader import lead

pytestmark = pytest.mark.usefixtures("no_litter")


class Worker:
    """Stands in line; `leading` while its body runs."""

    def __init__(self, redis, ttl=0.6):
        self.leading = False
        self.terms = 0
        self.task = asyncio.create_task(lead(redis, "the-watch", ttl, self._body))

    async def _body(self):
        self.leading = True
        self.terms += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.leading = False

    async def stop(self):
        self.task.cancel()
        await asyncio.wait([self.task])


async def test_leader_that_stops_is_replaced(redis, wait_until):
    workers = [Worker(redis) for _ in range(3)]
    await wait_until(lambda: any(w.leading for w in workers), "one is the leader")
    first = next(w for w in workers if w.leading)
    await first.stop()
    assert not first.leading
    await wait_until(lambda: sum(w.leading for w in workers) == 1, "another one is the leader")
    for worker in workers:
        await worker.stop()
    assert await redis.exists("the-watch") == 0


async def test_leader_that_lost_its_lease_stops_and_waits_again(redis, wait_until):
    worker = Worker(redis)
    await wait_until(lambda: worker.leading, "it leads")
    await redis.set("the-watch", "another", px=60_000)
    await wait_until(lambda: not worker.leading, "it stopped")
    assert await redis.get("the-watch") == b"another", "it takes nothing from the other"
    await redis.delete("the-watch")
    await wait_until(lambda: worker.terms == 2, "it leads again")
    await worker.stop()


async def test_leader_releases_the_lease_when_the_body_ends_or_fails(redis):
    async def ends():
        pass

    async def fails():
        raise ValueError("a bug")

    await lead(redis, "the-watch", 60, ends)
    with pytest.raises(ValueError, match="a bug"):
        await lead(redis, "the-watch", 60, fails)
    assert await redis.exists("the-watch") == 0
