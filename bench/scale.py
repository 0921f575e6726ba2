"""Running sweeps of 20 trials on one worker: memory, reaction to changes in the cluster, and CPU per change.

The worker is a process of its own. The API server, Redis, and Slack are those of the local world, and nothing
runs in the cluster: pods are made to start and stop, 20 a second in all. A reaction lasts from a pod's change
to the sweep's record that follows from it. The times contain those of the local API server, which shares the
machine.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import monotonic

from redis.asyncio import Redis

from bench.child import Child, child, free_port
from bench.environments import python_of
from bench.site import Site, site
from bench.table import Row, bounded
from bot.core.events import Progress, Result
from bot.core.record import Phase, SweepRecord
from bot.launch.plan import plan
from bot.storage.redis_client import connect
from bot.storage.sweeps import Store
from k8s.katib.spec import EXPERIMENT_LABEL, TRIAL_LABEL, with_image
from k8s.objects import MANAGED_BY, SWEEP_LABEL, Manifest
from k8s.pods import JOB_LABEL
from local.kubernetes import store as kubernetes
from local.kubernetes.api import serve
from tests.bot.factories import ORDER, SETTINGS, a_sweep

SIZES, TRIALS = (10, 100, 1000), 20
RATE, SECONDS = 20, 20  # changes per second, and for how long
QUIET = 3.0  # seconds without a reconcile after which the start is over
LONGEST_START = 600.0  # seconds
MAX_MEMORY = 300  # MB
DIGEST = f"sha256:{'d' * 64}"


@dataclass
class Figures:
    memory: float = 0  # MB of resident memory at its peak
    cpu: float = 0  # ms of CPU per change
    reactions: list[float] = field(default_factory=list)  # ms
    unseen: int = 0  # changes that no record followed


async def run() -> list[Row]:
    found = {size: await _measured(size) for size in SIZES}
    few, many = found[SIZES[0]], found[SIZES[-1]]
    rows = []
    for size, figures in found.items():
        what = f"{size:,} running sweeps of {TRIALS} trials"
        last = size == SIZES[-1]
        limit = MAX_MEMORY if last else None
        rows.append(bounded(f"{what}: peak memory", [figures.memory], unit="MB", at_most=limit))
        rows.append(_reaction(what, figures, few if last else None))
        rows.append(bounded(f"{what}: CPU per change", [figures.cpu], unit="ms", at_most=None))
    growth = many.cpu / few.cpu
    rows.append(
        Row(
            what=f"CPU per change, {SIZES[-1]:,} sweeps",
            against=f"{SIZES[0]} sweeps",
            measured=f"{many.cpu:.3g} ms vs {few.cpu:.3g} ms",
            ratio=round(growth, 3),
            goal="at most 2x",
            met=growth <= 2,
        )
    )
    return rows


def _reaction(what: str, figures: Figures, few: Figures | None) -> Row:
    middle, p99 = median(figures.reactions), quantiles(figures.reactions, n=100)[98]
    ratio = middle / median(few.reactions) if few else None
    return Row(
        what=f"{what}: reaction",
        against=f"{SIZES[0]} sweeps" if few else "",
        measured=f"p50 {middle:.0f} ms, p99 {p99:.0f} ms, {figures.unseen} without one",
        ratio=round(ratio, 3) if ratio else None,
        goal="at most 2x" if few else "",
        met=ratio <= 2 and not figures.unseen if ratio else None,
        samples={"ms": figures.reactions},
    )


async def _measured(size: int) -> Figures:
    cluster = kubernetes.Store()
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    async with site() as here, connect(here.redis_url) as redis:
        names = [f"lr-{number:04}" for number in range(size)]
        for name in names:
            await _sweep(cluster, redis, name)
        async with _worker(cluster, here) as worker:
            await _settled(redis, worker)
            return await _changed(cluster, redis, names, worker)


async def _sweep(cluster: kubernetes.Store, redis: Redis, name: str) -> None:
    """One whose first trial has succeeded, so that it isn't examined any more."""
    order = replace(ORDER, sweep=name, request_id=name)
    planned, now = plan(order, SETTINGS), datetime.now(UTC)
    image = f"{planned.image_repository}@{DIGEST}"
    first = Result(trial=_trial(name, 0), value=0.5, parameters={"lr": "0.1"})
    sweep = a_sweep(Phase.RUNNING, request_id=name, plan=planned, image=image, submitted=True)
    progress = Progress(waiting=TRIALS - 1, succeeded=1, best=first)
    sweep = replace(sweep, id=name, since=now, created=now, progress=progress, durable_phase=Phase.RUNNING)
    sweep = replace(
        sweep, results_url="http://mlflow.example", shown="x", shown_at=now, shown_phase=sweep.phase
    )
    await Store(redis).restore(sweep)
    cluster.create(with_image(planned.experiment, image))
    for number in range(TRIALS):
        _objects(cluster, sweep, number)


def _objects(cluster: kubernetes.Store, sweep: SweepRecord, number: int) -> None:
    name, labels = _trial(sweep.id, number), {MANAGED_BY: "sweepbot", SWEEP_LABEL: sweep.id}
    labels |= {EXPERIMENT_LABEL: sweep.id, TRIAL_LABEL: name}
    meta = {"name": name, "namespace": "sweeps", "labels": labels}
    spec = {"parameterAssignments": [{"name": "lr", "value": "0.1"}], "runSpec": {"command": "x" * 2000}}
    cluster.create({"apiVersion": "kubeflow.org/v1beta1", "kind": "Trial", "metadata": meta, "spec": spec})
    if number == 0:
        _status(cluster, "Trial", name, {"conditions": [_condition("Succeeded")], **_observed("0.5")})
        return
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i", "env": _variables()}]}
    job = {"template": {"metadata": {"labels": labels}, "spec": pod}}
    cluster.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job})
    meta = {**meta, "name": f"{name}-pod", "labels": {**labels, JOB_LABEL: name}}
    cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})


def _trial(sweep: str, number: int) -> str:
    return f"{sweep}-{number:08}"


def _variables() -> list[Manifest]:
    return [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(20)]


def _condition(type_: str) -> Manifest:
    return {"type": type_, "status": "True", "reason": f"Trial{type_}", "message": f"Trial has {type_}"}


def _observed(value: str) -> Manifest:
    metric = {"name": ORDER.space.metric, "min": value, "max": value, "latest": value}
    return {"observation": {"metrics": [metric]}}


def _status(cluster: kubernetes.Store, kind: str, name: str, status: Manifest) -> None:
    cluster.patch(kind, "sweeps", name, {"status": status}, subresource="status")


@asynccontextmanager
async def _worker(cluster: kubernetes.Store, here: Site) -> AsyncIterator[Child]:
    server = await serve(cluster)
    with TemporaryDirectory(prefix="sweepbot-bench-") as folder:
        server.kubeconfig(Path(folder) / "kubeconfig")
        env = {**here.env, "KUBECONFIG": f"{folder}/kubeconfig", "HTTP_PORT": str(free_port())}
        env |= {"K8S_NAMESPACE": "sweeps", "USAGE_SECONDS": "300"}
        python = await asyncio.to_thread(python_of, "run")  # the packages of its image
        async with child("-m", "bot", "work", env=env, python=python) as started:
            yield started
    await server.close()


async def _settled(redis: Redis, worker: Child) -> None:
    """Wait until every sweep was reconciled after the start, and nothing is ready any more."""
    async with asyncio.timeout(LONGEST_START):
        while not await redis.exists("sweepbot:resync"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        used, since = worker.cpu, monotonic()
        while monotonic() - since < QUIET:
            await asyncio.sleep(0.5)
            busy = await redis.zcard("sweepbot:queue:ready") + await redis.zcard("sweepbot:queue:running")
            if busy or worker.cpu - used > 0.25 * (monotonic() - since + 0.5):
                used, since = worker.cpu, monotonic()


async def _changed(cluster: kubernetes.Store, redis: Redis, names: list[str], worker: Child) -> Figures:
    """Start and stop pods at random, and follow the records."""
    found, pending, chance = Figures(), dict[str, float](), random.Random(7)  # noqa: S311
    await redis.config_set("notify-keyspace-events", "Kh")
    async with redis.pubsub() as saves:
        await saves.psubscribe("__keyspace@0__:sweepbot:sweep:*")
        following = asyncio.create_task(_follow(saves, pending, found))
        running: set[str] = set()
        before, begin = worker.cpu, monotonic()
        for number in range(RATE * SECONDS):
            await asyncio.sleep(max(0.0, begin + number / RATE - monotonic()))
            sweep = chance.choice(names)
            pod = f"{_trial(sweep, chance.randrange(1, TRIALS))}-pod"
            pending.setdefault(sweep, monotonic())
            _toggle(cluster, pod, running)
        await asyncio.sleep(QUIET)
        found.cpu = 1000 * (worker.cpu - before) / (RATE * SECONDS)
        found.memory = _memory(worker)
        found.unseen = len(pending)
        following.cancel()
    return found


async def _follow(saves: "Redis.pubsub", pending: dict[str, float], found: Figures) -> None:
    async for message in saves.listen():
        if message["type"] == "pmessage":
            sweep = message["channel"].decode().rpartition(":")[2]
            if (since := pending.pop(sweep, None)) is not None:
                found.reactions.append(1000 * (monotonic() - since))


def _toggle(cluster: kubernetes.Store, pod: str, running: set[str]) -> None:
    started_at = {"running": {"startedAt": "2026-11-21T12:00:00Z"}}
    state = {"waiting": {"reason": "ContainerCreating"}} if pod in running else started_at
    status = {"name": "main", "state": state, "ready": pod not in running, "restartCount": 0}
    status |= {"image": "i", "imageID": ""}
    phase = "Pending" if pod in running else "Running"
    _status(cluster, "Pod", pod, {"phase": phase, "containerStatuses": [status]})
    running ^= {pod}


def _memory(worker: Child) -> float:
    """Return the resident memory at its peak, in MB."""
    lines = Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
