"""The queue and the records while workers and Redis are killed and paused at any moment.

Guarantees: whatever happens to workers, no request is lost or has two effects, and the item of a dead worker
runs again within 1.25 leases. After its own death, Redis restarts from its append-only file in an earlier
consistent state. It writes before it responds, but can delay that by two seconds while the disk is slow
(appendfsync everysec), so requests of the last two seconds can be lost.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.commands import Action, Command
from bot.core.record import Phase, SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.core.work_item import WorkItem
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import MAX_STARTS, Queue
from tests.chaos.conftest import Crew, Server
from tests.chaos.worker import POISON

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_litter")]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LEASE = 0.8  # seconds
HELD_BACK = 2.0  # seconds of acknowledged writes that Redis may lose


class Sweeps:
    """Some sweeps, and all requests for them."""

    def __init__(self, redis: Redis, wait_until: Any) -> None:
        self.redis, self.wait_until = redis, wait_until
        self.store, self.queue = Store(redis), Queue(redis)
        self.ids: list[str] = []
        self.asked: list[tuple[str, str, float]] = []  # sweep, word, when it was acknowledged
        self._words = (f"word-{n}" for n in count())

    async def create(self, number: int) -> None:
        for sweep_id in (f"sweep-{n}" for n in range(number)):
            await self.store.create(_record(sweep_id), [sweep_id], f"delivery-{sweep_id}")
            self.ids.append(sweep_id)

        await self.written()

    async def written(self) -> None:
        """Wait until all writes so far are in Redis' file."""

        async def is_written() -> bool:
            return int((await self.redis.info("persistence"))["aof_buffer_length"]) == 0

        await self.wait_until(is_written, "all is written")

    async def command(self, sweep_id: str, word: str = "") -> None:
        """As a click does; again until Redis has it."""
        word = word or next(self._words)
        while True:
            try:
                await self.store.add_command(
                    sweep_id, Command(action=Action.CANCEL, user=word, user_name="ada")
                )
                await self.queue.add(WorkItem.sweep(sweep_id))
            except RedisError:
                await asyncio.sleep(0.05)
            else:
                self.asked.append((sweep_id, word, time.monotonic()))
                return

    async def received(self) -> dict[str, tuple[str, ...]]:
        records = [await self.store.get(sweep_id) for sweep_id in self.ids]
        return {record.id: record.sent_keys for record in records if record}

    async def all_received(self, seconds: float = 40) -> None:
        """Wait until every request has had its effect and nothing is queued or running."""
        wanted = defaultdict(set)
        for sweep_id, word, _ in self.asked:
            wanted[sweep_id].add(word)

        async def over() -> bool:
            reported = await self.received()
            return all(words <= set(reported[sweep_id]) for sweep_id, words in wanted.items())

        await self.wait_until(over, "every request was received", seconds=seconds)
        await self.wait_until(self.quiet, "nothing is left in the queue", seconds=seconds)
        reported = await self.received()
        assert {sweep_id: Counter(words) for sweep_id, words in reported.items()} == {
            sweep_id: Counter(wanted[sweep_id]) for sweep_id in self.ids
        }, "each request had one effect"

    async def quiet(self) -> bool:
        keys = await self.redis.keys()  # at one moment: SCAN could miss an item that is taken meanwhile
        return not [key for key in keys if key.startswith((b"sweepbot:queue", b"sweepbot:commands"))]

    async def end(self) -> None:
        for sweep_id in self.ids:
            record = await self.store.get(sweep_id)
            assert record
            await self.store.save(record.to(Phase.SUCCEEDED, NOW))


def _record(sweep_id: str) -> SweepRecord:
    return SweepRecord(
        id=sweep_id,
        namespace="sweeps",
        request=SweepRequest(branch="main", space="lr"),
        requester=Requester(user="U1", user_name="ada", channel="C1"),
        request_id=f"delivery-{sweep_id}",
        created=NOW,
        since=NOW,
    )


@pytest.fixture
def sweeps(redis: Redis, wait_until: Any) -> Sweeps:
    return Sweeps(redis, wait_until)


def one_effect_each(saved: Iterable[dict[str, Any]], forgiven: Iterable[float] = ()) -> None:
    """No version of a sweep was saved twice, except what Redis may have lost when it was killed."""
    seen: dict[tuple[str, int], float] = {}
    for entry in saved:
        key = entry["sweep"], entry["version"]
        lost = any(0 <= killed - seen.get(key, -1e9) <= HELD_BACK for killed in forgiven)
        assert key not in seen or lost, f"{key} was saved twice"
        seen[key] = entry["at"]


async def test_queue_with_twenty_workers_runs_each_sweep_alone(sweeps: Sweeps, crew: Crew) -> None:
    await sweeps.create(15)
    await crew.hire(20, lease=30)
    for _ in range(8):
        await asyncio.gather(*(sweeps.command(sweep_id) for sweep_id in sweeps.ids))
    await sweeps.all_received()
    runs: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for entry in crew.ledger():
        runs[entry["sweep"]].append((entry["token"], entry["what"]))
    for reported in runs.values():
        tokens = list(dict.fromkeys(token for token, _ in reported))
        assert reported == [(t, what) for t in tokens for what in ("began", "saved", "done")]
    assert len({entry["pid"] for entry in crew.ledger()}) > 1
    await sweeps.end()


async def test_queue_with_killed_and_paused_workers_loses_nothing(sweeps: Sweeps, crew: Crew) -> None:
    await sweeps.create(12)
    await crew.hire(20, lease=LEASE)
    asking = asyncio.create_task(_request(3, sweeps))
    paused = []
    while not asking.done():
        await asyncio.sleep(random.uniform(0, 0.1))
        pid = crew.anyone()
        if random.random() < 0.3:
            os.kill(pid, signal.SIGSTOP)
            paused.append(asyncio.create_task(_resume(pid, crew)))
        else:
            crew.kill(pid)
            await crew.hire(lease=LEASE)
    await asyncio.gather(asking, *paused)
    await sweeps.all_received()
    one_effect_each(crew.ledger("saved"))
    await sweeps.end()


async def _request(seconds: float, sweeps: Sweeps) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await sweeps.command(random.choice(sweeps.ids))
        await asyncio.sleep(0.01)


async def _resume(pid: int, crew: Crew) -> None:
    await asyncio.sleep(LEASE * random.uniform(0.5, 2))
    if pid in crew.pids:
        os.kill(pid, signal.SIGCONT)


async def test_queue_item_of_a_killed_worker_runs_again_soon(
    sweeps: Sweeps, crew: Crew, wait_until: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The limit is generous, for a loaded machine; the measured time is printed."""
    await sweeps.create(6)
    hanging = await crew.hire(6, lease=LEASE, manner="hangs")
    for sweep_id in sweeps.ids:
        await sweeps.command(sweep_id)
    # On a busy machine a lease can be lost, and its sweep begin again: the last one counts.
    first = await wait_until(
        lambda: len(found := {entry["sweep"]: entry for entry in crew.ledger("began")}) == 6 and found,
        "all have started",
    )
    await crew.hire(2, lease=LEASE)
    crashed = {}
    for pid in hanging:
        await asyncio.sleep(LEASE * random.uniform(0, 0.5))
        crew.kill(pid)
        crashed[pid] = time.monotonic()
    await sweeps.all_received()
    again = {
        entry["sweep"]: entry["at"] for entry in reversed(crew.ledger("began")) if entry["pid"] not in crashed
    }
    waits = sorted((again[sweep] - crashed[entry["pid"]]) / LEASE for sweep, entry in first.items())
    with capsys.disabled():
        print(f"\n  restarted after {', '.join(f'{wait:.2f}' for wait in waits)} of the lease")
    assert waits[-1] < 5
    await sweeps.end()


async def test_queue_quarantines_only_the_sweep_that_kills_five_workers(
    sweeps: Sweeps, crew: Crew, wait_until: Any
) -> None:
    await sweeps.create(6)
    await crew.hire(3, lease=LEASE, manner="poisoned")
    await sweeps.queue.add(WorkItem.sweep(POISON))
    for sweep_id in sweeps.ids[1:]:
        await sweeps.command(sweep_id)

    async def quarantined() -> bool:
        for pid in [pid for pid in crew.pids if not _is_alive(pid)]:
            crew.pids.remove(pid)
            await crew.hire(lease=LEASE, manner="poisoned")
        return bool(crew.ledger("quarantined"))

    await wait_until(quarantined, "it is quarantined")
    assert [entry["sweep"] for entry in crew.ledger("died")] == [POISON] * MAX_STARTS
    assert list(await sweeps.queue.quarantined()) == [POISON]
    for pid in list(crew.pids):
        crew.kill(pid)
    await crew.hire(lease=LEASE)
    assert await sweeps.queue.retry(WorkItem.sweep(POISON))
    await sweeps.command(POISON)
    await sweeps.all_received()
    await sweeps.end()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("manner", ["stops", "stops unaware"])
async def test_worker_paused_past_its_lease_changes_nothing(
    sweeps: Sweeps, crew: Crew, wait_until: Any, manner: str
) -> None:
    await sweeps.create(1)
    [late] = await crew.hire(lease=LEASE, manner=manner)
    await sweeps.command("sweep-0")
    await wait_until(lambda: crew.ledger("began"), "it has started")
    await crew.hire(lease=LEASE)
    [saved] = await wait_until(lambda: crew.ledger("saved"), "another has done it")
    await sweeps.command("sweep-0", "later")
    await sweeps.all_received()
    before = await sweeps.store.get("sweep-0")
    os.kill(late, signal.SIGCONT)
    [refused] = await wait_until(lambda: crew.ledger("refused"), "the late one is refused")
    assert (refused["pid"], saved["pid"] != late) == (late, True)
    if manner == "stops unaware":
        assert refused["why"].endswith("was not saved: the lease is lost")
    await sweeps.all_received()
    assert await sweeps.store.get("sweep-0") == before
    await sweeps.end()


async def test_redis_keeps_what_it_wrote_before_a_kill(
    sweeps: Sweeps, crew: Crew, server: Server, redis: Redis, wait_until: Any
) -> None:
    """Ready, delayed, running, and queued again: each state is preserved."""
    await sweeps.create(3)
    await crew.hire(lease=LEASE, manner="hangs")
    await sweeps.command("sweep-0")
    await wait_until(lambda: crew.ledger("began"), "sweep-0 runs")
    await sweeps.command("sweep-0", "again")
    await sweeps.command("sweep-1")
    await sweeps.queue.add_after(WorkItem.sweep("sweep-2"), 1000)
    await sweeps.written()
    crew.kill(crew.anyone())
    before = await _state(redis)
    server.kill()
    server.start()
    await redis.connection_pool.disconnect()
    assert await _state(redis) == before
    await sweeps.queue.add(WorkItem.sweep("sweep-2"))
    await crew.hire(2, lease=LEASE)
    await sweeps.all_received()
    await sweeps.end()


async def _state(redis: Redis) -> dict[str, Any]:
    """Which items stand where."""
    names = ("ready", "delayed", "running", "again")
    return {name: await redis.zrange(f"sweepbot:queue:{name}", 0, -1, withscores=True) for name in names}


async def test_redis_killed_at_random_loses_at_most_the_last_second(
    sweeps: Sweeps, crew: Crew, server: Server
) -> None:
    await sweeps.create(10)
    await crew.hire(8, lease=LEASE)
    for _ in range(3):
        asking = asyncio.create_task(_request(1.5, sweeps))
        await asyncio.sleep(random.uniform(0.5, 1))
        server.kill()
        await asyncio.sleep(random.uniform(0, 0.3))
        server.start()
        await asking
    for sweep_id, word in [(s, w) for s, w, at in sweeps.asked if _may_be_lost(at, server)]:
        await sweeps.command(sweep_id, word)
    await sweeps.all_received()
    one_effect_each(crew.ledger("saved"), forgiven=server.killed)
    await sweeps.end()


def _may_be_lost(at: float, server: Server) -> bool:
    return any(0 <= killed - at <= HELD_BACK for killed in server.killed)
