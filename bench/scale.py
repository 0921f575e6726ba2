"""Running sweeps of 20 trials on one worker: memory, reaction to changes in the cluster, and CPU per change.

The worker, with the packages of its image, and the API server (bench/scale_cluster.py) are processes of their
own. Nothing runs in the cluster: pods are made to start and stop, 20 a second in all. A reaction lasts from a
pod's change to the sweep's record that follows from it. The times contain those of the local API server.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import monotonic

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from bench.child import Child, child
from bench.environments import python_of
from bench.scale_cluster import RATE, SECONDS, TRIALS, planned, sweep_name, trial_name
from bench.site import site
from bench.table import Row, bounded, part
from bot.core.events import Progress, Result
from bot.core.record import Phase, Shown, SweepRecord
from bot.core.work_item import WorkItem
from bot.platform.storage.redis_client import connect
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from tests.bot.factories import a_sweep
from tests.free_port import free_port

SIZES = (10, 100, 1000)  # sweeps of TRIALS trials
LONG = (500, 2000)  # trials of one sweep, all of them live but the first
QUIET = 3.0  # seconds without a reconcile after which the start is over
LONGEST_START = 600.0  # seconds
MAX_MEMORY = 300  # MB


@dataclass
class Figures:
    memory: float = 0  # MB of resident memory at its peak
    cpu: float = 0  # ms of CPU per change, of all workers
    reconciles: int = 0
    reactions: list[float] = field(default_factory=list)  # ms
    unseen: int = 0  # changes that no record followed


async def run() -> list[Row]:
    found = {size: await measured(size) for size in SIZES}
    few, many = found[SIZES[0]], found[SIZES[-1]]
    rows = []
    for size, figures in found.items():
        what = f"{size:,} running sweeps of {TRIALS} trials"
        last = size == SIZES[-1]
        limit = MAX_MEMORY if last else None
        rows.append(bounded(f"{what}: peak memory", [figures.memory], unit="MB", at_most=limit))
        rows.append(_reaction(what, figures, few if last else None))
        rows.append(bounded(f"{what}: CPU per change", [figures.cpu], unit="ms", at_most=None))
    rows.append(_growth(f"{SIZES[-1]:,} sweeps", many, f"{SIZES[0]} sweeps", few, 2))
    return rows + await part("one long sweep", _long())


async def _long() -> list[Row]:
    """Compare one long sweep with one of TRIALS trials: each of their pods changes at the same rate."""
    short, rows = await measured(1), []
    for trials in LONG:
        figures, what = await measured(1, trials), f"1 running sweep of {trials:,} trials"
        limit = 1.3 if trials == LONG[0] else None
        rows.append(_growth(what, figures, f"1 of {TRIALS}", short, limit))
        rows.append(bounded(f"{what}: peak memory", [figures.memory], unit="MB", at_most=MAX_MEMORY))
        rows.append(_reaction(what, figures, short, f"1 of {TRIALS} trials"))
    return rows


def _growth(what: str, ours: Figures, against: str, theirs: Figures, limit: float | None) -> Row:
    ratio = ours.cpu / theirs.cpu
    return Row(
        what=f"CPU per change, {what}",
        against=against,
        measured=f"{ours.cpu:.3g} ms vs {theirs.cpu:.3g} ms",
        ratio=round(ratio, 3),
        goal=f"at most {limit:g}x" if limit else "",
        met=ratio <= limit if limit else None,
    )


def _reaction(what: str, figures: Figures, few: Figures | None, against: str = f"{SIZES[0]} sweeps") -> Row:
    middle, p99 = median(figures.reactions), quantiles(figures.reactions, n=100)[98]
    ratio = middle / median(few.reactions) if few else None
    return Row(
        what=f"{what}: reaction",
        against=against if few else "",
        measured=f"p50 {middle:.0f} ms, p99 {p99:.0f} ms, {figures.unseen} without one",
        ratio=round(ratio, 3) if ratio else None,
        goal="at most 2x" if few else "",
        met=ratio <= 2 and not figures.unseen if ratio else None,
        samples={"ms": figures.reactions},
    )


async def measured(size: int, trials: int = TRIALS, workers: int = 1, rounds: int = 0) -> Figures:
    """`rounds`: how often all sweeps are queued before, so that each worker has parsed each one's objects."""
    async with site() as here, connect(here.redis_url) as redis, AsyncExitStack() as stack:
        with TemporaryDirectory(prefix="sweepbot-bench-") as folder:
            kubeconfig = f"{folder}/kubeconfig"
            async with child("-m", "bench.scale_cluster", str(size), kubeconfig, str(trials)) as cluster:
                for number in range(size):
                    await Store(redis).restore(running_record(sweep_name(number), trials))
                await cluster.line(LONGEST_START)
                env = {**here.env, "KUBECONFIG": kubeconfig, "K8S_NAMESPACE": "sweeps"}
                started = [await stack.enter_async_context(running_worker(env)) for _ in range(workers)]
                await settled(redis, *started)
                for _ in range(rounds):
                    await _reconciled(redis, size)
                await settled(redis, *started)
                return await _changed(cluster, redis, started)


def running_record(name: str, trials: int = TRIALS) -> SweepRecord:
    """Return the record of a sweep whose first trial has succeeded and whose messages are shown."""
    (plan, image), now = planned(name), datetime.now(UTC)
    first = Result(trial=trial_name(name, 0), value=0.5, parameters={"lr": "0.1"})
    sweep = a_sweep(Phase.RUNNING, request_id=name, plan=plan, image=image, submitted=True)
    progress = Progress(waiting=trials - 1, succeeded=1, best=first)
    sweep = replace(sweep, id=name, since=now, created=now, progress=progress, durable_phase=Phase.RUNNING)
    return replace(
        sweep,
        thread=f"1.{name[-4:]}",  # its own, as edits wait for their turn by message
        permalink="https://slack.example/archives/C1/p1",
        results_url="http://mlflow.example",
        shown=Shown(fingerprint="x", at=now, phase=sweep.phase),
    )


@asynccontextmanager
async def running_worker(env: Mapping[str, str]) -> AsyncIterator[Child]:
    """Run `work` with the packages of its image."""
    env = {**env, "HTTP_PORT": str(free_port()), "USAGE_SECONDS": "300"}
    python = await asyncio.to_thread(python_of, "run")
    async with child("-m", "bot", "work", env=env, python=python) as started:
        yield started


async def settled(redis: Redis, *workers: Child) -> None:
    """Wait until every sweep was reconciled after the start, and nothing is ready any more."""
    async with asyncio.timeout(LONGEST_START):
        while not await redis.exists("sweepbot:resync"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        used, since = _cpu(workers), monotonic()
        while monotonic() - since < QUIET:
            await asyncio.sleep(0.5)
            if await _busy(redis) or _cpu(workers) - used > 0.25 * len(workers) * (monotonic() - since + 0.5):
                used, since = _cpu(workers), monotonic()


async def _reconciled(redis: Redis, size: int) -> None:
    for number in range(size):
        await Queue(redis).add(WorkItem.sweep(sweep_name(number)))
    while await _busy(redis):  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def _busy(redis: Redis) -> int:
    return int(await redis.zcard("sweepbot:queue:ready") + await redis.zcard("sweepbot:queue:running"))


async def _changed(cluster: Child, redis: Redis, workers: Sequence[Child]) -> Figures:
    """Have the pods changed, and follow the records."""
    found, pending = Figures(), dict[str, float]()
    await redis.config_set("notify-keyspace-events", "Kh")
    async with redis.pubsub() as saves:
        await saves.psubscribe("__keyspace@0__:sweepbot:sweep:*")
        following = asyncio.create_task(_follow(saves, pending, found))
        before, reconciled = _cpu(workers), await _reconciles(redis)
        cluster.process.send_signal(signal.SIGUSR1)
        while (line := await cluster.line()) != "done":
            sweep, at = line.split()
            pending.setdefault(sweep, float(at))
        await asyncio.sleep(QUIET)
        found.cpu = 1000 * (_cpu(workers) - before) / (RATE * SECONDS)
        found.reconciles = await _reconciles(redis) - reconciled
        found.memory = max(map(_memory, workers))
        found.unseen = len(pending)
        following.cancel()
    return found


def _cpu(workers: Iterable[Child]) -> float:
    return sum(each.cpu for each in workers)


async def _reconciles(redis: Redis) -> int:
    """Return how often a reconcile has read the commands to its sweep so far."""
    return int((await redis.info("commandstats")).get("cmdstat_lrange", {"calls": 0})["calls"])


async def _follow(saves: PubSub, pending: dict[str, float], found: Figures) -> None:
    async for message in saves.listen():
        if message["type"] == "pmessage":
            sweep = message["channel"].decode().rpartition(":")[2]
            if (since := pending.pop(sweep, None)) is not None:
                found.reactions.append(1000 * (monotonic() - since))


def _memory(worker: Child) -> float:
    """Return the resident memory at its peak, in MB (10^6 bytes)."""
    lines = Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6
