"""One leader at a time, and always soon another."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import RedisError

from bot.core.metrics import LEADER, REGISTRY
from bot.platform.storage import leader
from bot.platform.storage.leader import lead

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


async def test_renewed_lease_lasts_its_whole_time_again(redis, monkeypatch):
    @asynccontextmanager
    async def once(_, renew):
        await redis.persist("the-watch")
        assert await renew()
        yield

    async def body():
        assert 50_000 < await redis.pttl("the-watch") <= 60_000

    monkeypatch.setattr(leader, "renewing", once)
    await lead(redis, "the-watch", 60, body)


def is_counted():
    return REGISTRY.get_sample_value("sweepbot_leader", {"lease": "the-watch"})


async def test_leader_is_counted_while_it_leads(redis, wait_until):
    LEADER.labels("the-watch").set(1)
    await redis.set("the-watch", "another", px=60_000)
    worker = Worker(redis)
    await wait_until(lambda: is_counted() == 0, "it waits in line")
    await redis.delete("the-watch")
    await wait_until(lambda: worker.leading, "it leads")
    assert is_counted() == 1
    await worker.stop()
    assert is_counted() == 0


class Failing:
    """Answers attempts to take the lease: an error, False for another's, or True."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def register_script(self, _):
        async def run(*_):
            return 1

        return run

    async def set(self, *_, **__):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_leader_reports_each_outage_once_and_retries_three_times_per_lease(monkeypatch, caplog):
    slept, sleep = [], asyncio.sleep

    async def instantly(seconds):
        slept.append(seconds)
        await sleep(0)

    async def ends():
        pass

    monkeypatch.setattr(asyncio, "sleep", instantly)
    down = RedisError("down")
    with caplog.at_level(logging.WARNING):
        await lead(Failing(down, down, False, down, True), "the-watch", 30, ends)
    assert [record.getMessage() for record in caplog.records] == [
        "can't acquire the lease the-watch: down"
    ] * 2
    assert len(slept) == 4
    assert all(8 <= seconds <= 12 for seconds in slept)
