"""GPU use of 10,000 GPUs: a digest and a bill from stored hours, and what filling them and `/gpus` cost.

Uses are generated, with about 5,000 pods at a time. Ours are CPU seconds, which other load on the machine
hardly changes. The peer is what a digest would be without stored hours: subqueries over 24 hours, here of 250
GPUs, because those over 10,000 reach Prometheus' limits.
"""

import asyncio
import random
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import which
from typing import Any
from zlib import compress

from redis.asyncio import Redis

from bench.gpu_history import Server, prometheus
from bench.table import Row, bounded, compared, interleaved, part
from bot.core.plan import HOME_CLUSTER
from bot.measure.gpus.billing import bill, bill_file
from bot.measure.gpus.command import ParsedCommand
from bot.measure.gpus.hour_format import CAPACITY, encode
from bot.measure.gpus.hourly_store import HourlyStore, full_hour
from bot.measure.gpus.models import HALF_HOUR, HOUR, Gpu, HourCapacity, HourUse, PodUse
from bot.measure.gpus.pod_owners import OwnerStore
from bot.measure.sources import sampling
from bot.measure.sources.dcgm_source import StoredSamples
from bot.measure.sources.prometheus import Prometheus
from bot.measure.sources.prometheus_source import PrometheusSource
from bot.measure.sources.sampling import PodSample, Sample
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.config.teams import Price
from bot.watch.digests.figures import figures
from bot.watch.digests.message import DigestContext, message
from bot.watch.digests.post import WEEK
from local.redis import redis

ROUNDS, GPUS, PEER_GPUS, DAYS = 3, 10_000, 250, 40
PODS, RENEWED = 4_700, 0.17  # at a time, and the share of them that is new each hour
SCHEDULE = DigestSchedule(channel="C1")
PRICES = (Price(model="NVIDIA H100", hourly=2.5), Price(model="NVIDIA A100", hourly=1.5))
MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S", "NVIDIA A10")
GPU_COUNT = 'max by (node) (kube_node_status_allocatable{resource="nvidia_com_gpu"})'
ALLOCATED = (
    'sum by (namespace, pod) (kube_pod_container_resource_requests{resource="nvidia_com_gpu",node!=""})'
    ' * on (namespace, pod) group_left () (kube_pod_status_phase{phase="Running"} == 1)'
)
UTIL = 'DCGM_FI_DEV_GPU_UTIL{pod!=""}'
PLAIN = (  # what a digest shows, each as one query
    f"sum_over_time((sum({GPU_COUNT}))[24h:1m]) / 60",
    f"sum by (namespace, pod) (sum_over_time(({ALLOCATED})[24h:1m])) / 60",
    f"sum by (namespace, pod) (sum_over_time({UTIL}[24h])) / 100 / 120",
    f"sum by (namespace, pod) (sum_over_time((max_over_time({UTIL}[30m]) < bool 1)[24h:30m])) / 2",
)


async def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="sweepbot-bench-") as name:
        folder = Path(name)
        rows = await _stored(folder)
        if which("prometheus") is None:
            return [*rows, _not_installed()]
        rows += await part("Prometheus, for `/gpus`", _live(folder))
        return rows + await part(f"digest, {PEER_GPUS} GPUs", _against_plain(folder))


def _not_installed() -> Row:
    measured = "not measured: prometheus isn't installed. As root on Debian: apt-get install prometheus"
    return Row(what="Prometheus, for `/gpus`", against="", measured=measured, goal="runs", met=False)


async def _stored(folder: Path) -> list[Row]:
    async with _store(folder / "stored") as (hours, now):
        await _fill(hours, now, PODS, DAYS)
        [digests] = await interleaved(ROUNDS, lambda: _cpu(lambda: _digest(hours, now)))
        [bills] = await interleaved(ROUNDS, lambda: _cpu(lambda: _bill(hours, now)))
        return [
            bounded(
                "reading 90 min of samples without Prometheus, 2,500 GPUs",
                [_samples()],
                unit="MB",
                at_most=30,
            ),
            bounded("digest from stored hours, 10,000 GPUs", digests, unit="CPU s", at_most=1),
            bounded("bill of 30 days, 10,000 GPUs, 40 days kept", bills, unit="CPU s", at_most=3),
            bounded("memory of that bill", [await _memory(hours, now)], unit="MB", at_most=None),
        ]


async def _live(folder: Path) -> list[Row]:
    end = full_hour(datetime.now(UTC))
    # Blocks end at even hours. So the hour is in one block: a running server has it in memory, at one place.
    end -= HOUR * (end.hour % 2 == 0)
    start, until = end - 1.2 * HOUR, end + HOUR / 60  # also the samples at the end
    async with (
        prometheus(folder / "live", GPUS, start.timestamp(), until.timestamp()) as server,
        _source(folder / "owners", server, end) as source,
    ):
        cold = await _server_cpu(server, lambda: source.snapshot(HALF_HOUR))
        warm = [await _server_cpu(server, lambda: source.snapshot(HALF_HOUR)) for _ in range(ROUNDS)]
        own = time.process_time()
        hourly = await _server_cpu(server, lambda: source.hour(end - HOUR))
        own = time.process_time() - own
        return [
            bounded("Prometheus, to measure an hour, 10,000 GPUs", [hourly], unit="CPU s", at_most=5),
            bounded("own, to measure an hour, 10,000 GPUs", [own], unit="CPU s", at_most=2),
            bounded("Prometheus, for the first `/gpus` in 10 min", [cold], unit="CPU s", at_most=None),
            bounded("Prometheus, for another `/gpus`, 10,000 GPUs", warm, unit="CPU s", at_most=2),
        ]


async def _against_plain(folder: Path) -> list[Row]:
    end = full_hour(datetime.now(UTC))
    start = end - 24 * HOUR
    async with (
        prometheus(folder / "peer", PEER_GPUS, start.timestamp(), end.timestamp()) as server,
        _store(folder / "small") as (hours, now),
    ):
        await _fill(hours, now, PODS * PEER_GPUS // GPUS, 8)
        client = Prometheus(server.url)
        ours, theirs = await interleaved(
            ROUNDS, lambda: _wall(lambda: _digest(hours, now)), lambda: _wall(lambda: _plain(client, end))
        )
        await client.close()
    against = "plain 24-hour subqueries"
    return [compared(f"digest, {PEER_GPUS} GPUs", against, ours, theirs, unit="s", at_most=1)]


async def _digest(hours: HourlyStore, now: datetime) -> None:
    """Do what posting does: read the day and the week before, sum them up, and write the message."""
    day = now - 24 * HOUR
    known, week = await hours.between(day, now), await hours.totals(day - WEEK, day)
    found = await asyncio.to_thread(figures, SCHEDULE, day.date(), known, week, PRICES)
    groups = [one.group for one in found.overrequests if one.ram]
    await hours.ram_peaks(day - WEEK, day, groups)
    message(found, DigestContext())


async def _bill(hours: HourlyStore, now: datetime) -> None:
    parsed = ParsedCommand(view="bill")
    totals = await hours.totals(now - timedelta(days=30), now)
    bill(parsed, totals, PRICES, "$", now)
    bill_file(parsed, {HOME_CLUSTER: totals}, PRICES)


def _samples() -> float:
    """Return the peak of Python's memory in MB while reading a window of samples, one each 30 s."""
    start, count = datetime.now(UTC), 180
    uses = [
        PodUse(
            namespace="sweeps",
            pod=f"lr-{number:04}",
            node=f"n{number // 2}",
            allocated=4,
            started=start,
            gpus=tuple(Gpu(device=f"GPU-{number}-{gpu}", model=MODELS[0], peak=0.5) for gpu in range(4)),
        )
        for number in range(2500 // 4)
    ]
    pods = tuple(PodSample(use=use, busy=True) for use in uses)
    times = (start + timedelta(seconds=30 * number) for number in range(count))
    texts = [compress(sampling.dump(Sample(at=at, step=30, pods=pods, nodes=()))) for at in times]
    tracemalloc.start()
    try:
        sampling.pods(StoredSamples(texts, start - HOUR), timedelta(minutes=90))
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


async def _plain(client: Prometheus, end: datetime) -> None:
    for query in PLAIN:
        await client.query(query, end)


async def _cpu(work: Callable[[], Awaitable[Any]]) -> float:
    before = time.process_time()
    await work()
    return time.process_time() - before


async def _wall(work: Callable[[], Awaitable[Any]]) -> float:
    before = time.perf_counter()
    await work()
    return time.perf_counter() - before


async def _server_cpu(server: Server, work: Callable[[], Awaitable[Any]]) -> float:
    before = server.cpu
    await work()
    return server.cpu - before


async def _memory(hours: HourlyStore, now: datetime) -> float:
    """Return the peak of Python's memory in MB while computing a bill."""
    tracemalloc.start()
    try:
        await _bill(hours, now)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@asynccontextmanager
async def _store(folder: Path) -> AsyncIterator[tuple[HourlyStore, datetime]]:
    async with _redis(folder) as client:
        yield HourlyStore(client), full_hour(datetime.now(UTC)).replace(hour=0)


@asynccontextmanager
async def _source(folder: Path, server: Server, now: datetime) -> AsyncIterator[PrometheusSource]:
    async with _redis(folder) as owners:
        client = Prometheus(server.url)
        yield PrometheusSource(client, OwnerStore(owners, tuple), lambda: now)
        await client.close()


@asynccontextmanager
async def _redis(folder: Path) -> AsyncIterator[Redis]:
    await asyncio.to_thread(folder.mkdir)
    with redis(folder) as url:
        client = Redis.from_url(url)
        yield client
        await client.aclose()


async def _fill(hours: HourlyStore, now: datetime, pods: int, days: int) -> None:
    """Store every hour before `now`; all days are alike, because encoding 40 takes minutes."""
    for number, uses in enumerate(_day(pods)):
        at = now - (number + 1) * HOUR
        capacity = HourCapacity(
            hour=at, capacity=2.2 * pods, allocated=2 * pods, unhealthy=8, observed=2 * pods
        )
        fields: dict[Any, Any] = dict(encode([use._replace(hour=at) for use in uses], capacity))
        for day in range(days):
            known = replace(capacity, hour=at - timedelta(days=day))
            await hours.put(known.hour, fields | {"capacity": CAPACITY.dump_json(known)})


def _day(number: int) -> list[list[HourUse]]:
    dice = random.Random(number)  # noqa: S311 - generates uses
    sweeps = [dice.randrange(number // 12 + 1) for _ in range(number)]
    pods = [f"lr-brave-otter-{dice.randrange(10**8):x}" for _ in range(number)]
    hours = []
    for _ in range(24):
        for index in range(number):
            if dice.random() < RENEWED:
                pods[index] = f"lr-brave-otter-{dice.randrange(10**8):x}"
        hours.append([_use(dice, pod, sweep) for pod, sweep in zip(pods, sweeps, strict=True)])
    return hours


def _use(dice: random.Random, pod: str, sweep: int) -> HourUse:
    gpus, share = dice.randint(1, 4), dice.random()
    return HourUse(
        hour=datetime.now(UTC),
        namespace=f"team-{sweep % 20}",
        pod=pod,
        allocated=float(gpus),
        observed=0.99 * gpus,
        used=gpus * share,
        idle=gpus * max(0.0, 0.5 - share),
        node=f"node-{dice.randrange(1250)}",
        owner=f"U{sweep % 200:08}",
        team=f"team-{sweep % 20}",
        sweep=f"lr-brave-otter-{sweep}" if sweep % 4 else "",
        model=MODELS[sweep % 4],
        gpus=gpus,
        unused=dice.randrange(2),
        cpu_requested=16.0,
        cpu_mean=16 * share,
        ram_requested=2.0**36,
        ram_peak=4096.0 * dice.randrange(2**22, 2**24),
    )
