"""Worker processes to be killed: `python -m tests.chaos.worker URL LEDGER`.

Each line `LEASE MANNER` on standard input forks one and prints its process id. A worker writes each effect to
the ledger, a file, as soon as it has happened.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from redis.exceptions import RedisError

from bot.platform.storage.redis_client import connect
from bot.platform.storage.sweeps import StaleRecordError, Store
from bot.platform.storage.work_queue import MAX_STARTS, Lease, LeaseLostError, Queue

POISON = "sweep-0"
NEVER = 10**9  # starts until a quarantine: here it is not the sweeps that kill
EFFORT = 0.02  # mean seconds of a run


@dataclass
class Worker:
    queue: Queue
    store: Store
    ledger: int  # a file that every process appends to

    def say(self, what: str, lease: Lease, **more: object) -> None:
        entry = {"what": what, "sweep": lease.item.key, "token": lease.token, "pid": os.getpid(), **more}
        os.write(self.ledger, json.dumps({**entry, "at": time.monotonic()}).encode() + b"\n")

    async def reconcile(self, lease: Lease, pause: Callable[[], Awaitable[None]]) -> None:
        """As in the product, a request is in the record before it is removed."""
        commands = await self.store.commands(lease.item.key)
        sweep = await self.store.get(lease.item.key)
        assert sweep
        self.say("began", lease, version=sweep.version)
        await pause()
        news = sorted({command.user for command in commands} - set(sweep.sent_keys))
        saved = await self.store.save(replace(sweep, sent_keys=(*sweep.sent_keys, *news)), lease)
        self.say("saved", lease, version=saved.version)
        await self.store.remove_commands(lease.item.key, commands)

    async def careful(self, lease: Lease, pause: Callable[[], Awaitable[None]]) -> None:
        """Renews its lease, and stops a run whose lease is lost."""
        async with self.queue.renewing(lease):
            await self.reconcile(lease, pause)

    async def poisoned(self, lease: Lease, pause: Callable[[], Awaitable[None]]) -> None:
        """The first sweep kills its whole process, as one that runs out of memory does."""
        if lease.quarantined:
            self.say("quarantined", lease)
        elif lease.item.key == POISON:
            self.say("died", lease)
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            await self.careful(lease, pause)

    async def take(self, lease: Lease, manner: str) -> None:
        way, pause = MANNERS[manner]
        try:
            await way(self, lease, pause)
            self.say("done", lease)
            await self.queue.done(lease)
        except (LeaseLostError, StaleRecordError) as lost:
            self.say("refused", lease, why=str(lost))
            await self.queue.fail(lease)


async def _work() -> None:
    await asyncio.sleep(random.expovariate(1 / EFFORT))


async def _hang() -> None:
    await asyncio.Event().wait()


async def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


MANNERS = {
    "works": (Worker.careful, _work),
    "hangs": (Worker.careful, _hang),
    "poisoned": (Worker.poisoned, _work),
    "stops": (Worker.careful, _stop),
    "stops unaware": (Worker.reconcile, _stop),  # nothing in the process shows that it is late
}


async def live(url: str, ledger: int, lease: float, manner: str) -> None:
    async with connect(url) as redis:
        most = MAX_STARTS if manner == "poisoned" else NEVER
        worker = Worker(Queue(redis, lease=lease, most_starts=most), Store(redis), ledger)
        while True:
            try:
                if taken := await worker.queue.get():
                    await worker.take(taken, manner)
            except RedisError:
                await asyncio.sleep(0.05)


def main() -> None:
    url, path = sys.argv[1:]
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # reap killed processes without waiting
    for line in sys.stdin:
        lease, _, manner = line.strip().partition(" ")
        if pid := os.fork():
            print(pid, flush=True)
        else:
            random.seed()
            asyncio.run(live(url, ledger, float(lease), manner))


if __name__ == "__main__":
    main()
