"""A real Prometheus with a day whose results are known: each figure within 1%, or unknown.

Needs Debian's package `prometheus`, which includes promtool. Runs with and without honorLabels, and on
VictoriaMetrics.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest
from redis.asyncio import Redis

from bot.measure.gpus.models import HOUR, Gpu, NodeUse, NoGpuDataError, PodUse
from bot.measure.gpus.pod_owners import Ownership, OwnerStore
from bot.measure.sources import promql, promql_hour
from bot.measure.sources.prometheus import Prometheus
from bot.measure.sources.prometheus_source import PrometheusSource
from bot.operate.check_state import METRIC_QUERIES
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.platform.config.teams import Team
from bot.watch.idle.detector import LOW_WINDOW, Kind, allocations, classify
from k8s.nodes.dcgm import NO_LOAD, UTIL, Load
from tests.bot.measure.sources.prometheus_server import (
    NEEDS_PROMETHEUS,
    NEEDS_VICTORIA_METRICS,
    asking,
    serving,
    serving_victoria_metrics,
)
from tests.bot.measure.sources.reference_day import cluster
from tests.bot.measure.sources.reference_day.expected import WARNED, assert_digest, assert_hours
from tests.bot.measure.sources.reference_day.prometheus_text import openmetrics

START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
TEAMS = (Team(name="speech", namespaces=("b",)), Team(name="vision", members=("U1A1",)))
HALF_HOUR = timedelta(minutes=30)
SLICE = f"{cluster.MODELS['n3']} MIG {cluster.SLICE}"

SERVERS = {
    "honorLabels": (serving, NEEDS_PROMETHEUS),
    "exported_pod": (serving, NEEDS_PROMETHEUS),
    "VictoriaMetrics": (serving_victoria_metrics, NEEDS_VICTORIA_METRICS),
}

pytestmark = pytest.mark.slow


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=needs) for name, (_, needs) in SERVERS.items()]
)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with all that was scraped in the day."""
    text = openmetrics(START, honoured=request.param == "honorLabels")
    serve, _ = SERVERS[request.param]
    with serve(tmp_path_factory.mktemp("server"), text) as address:
        yield address


@pytest.fixture
async def prometheus(served: str, wait_until) -> AsyncIterator[Prometheus]:
    async with asking(served, wait_until) as client:
        yield client


@pytest.fixture
def source_at(prometheus: Prometheus, redis: Redis) -> Callable[[float], PrometheusSource]:
    """As if it were that hour of the day."""
    owners = OwnerStore(redis, lambda: TEAMS)
    return lambda hour: PrometheusSource(prometheus, owners, lambda: START + hour * HOUR)


def near(exact: float) -> Any:
    return pytest.approx(exact, rel=0.01, abs=1e-9)


async def test_hours_equal_the_reference_day(source_at) -> None:
    hours = [await source_at(30).hour(START + number * HOUR) for number in range(24)]
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for use in (use for uses, _ in hours for use in uses):
        figures = (use.allocated, use.observed, use.used, use.idle)
        sums[f"{use.namespace}/{use.pod}"] = [
            sum(pair) for pair in zip(sums[f"{use.namespace}/{use.pod}"], figures, strict=True)
        ]
    assert sums == {pod: [near(each) for each in exact] for pod, exact in cluster.EXACT.items()}
    capacity = [capacity for _, capacity in hours]
    assert sum(each.capacity for each in capacity) == near(cluster.CAPACITY)
    assert sum(each.allocated for each in capacity) == near(sum(exact[0] for exact in cluster.EXACT.values()))
    assert sum(each.unhealthy for each in capacity) == near(cluster.LOST + cluster.CLOSED)
    assert sum(each.closed for each in capacity) == near(cluster.CLOSED)
    assert sum(each.waited for each in capacity) == near(cluster.WAITED)
    assert [each.coverage for each in capacity] == [near(1)] * 24
    assert_hours(hours)
    assert_digest(START, hours)


async def test_hour_names_model_owner_and_team(source_at, redis: Redis) -> None:
    remembered = {
        ("c", "slices"): Ownership(owner="U1A1", sweep="remembered"),
        ("b", "gap"): Ownership(owner="U1A1"),
    }
    await OwnerStore(redis, tuple).save(START, remembered)
    uses = {f"{use.namespace}/{use.pod}": use for use in (await source_at(24).hour(START + 23 * HOUR))[0]}
    assert (uses["a/half"].owner, uses["a/half"].sweep) == ("U1A1", "lr-brave-otter")
    assert uses["b/gap"].owner == "U1A1"  # the day's last hour is still of that day
    assert (uses["a/half"].team, uses["b/gap"].team, uses["c/newborn"].team) == ("vision", "speech", "")
    assert (uses["a/half"].model, uses["c/pulling"].model) == (cluster.MODELS["n2"], SLICE)
    uses = {use.pod: use for use in (await source_at(24).hour(START + 19 * HOUR))[0]}
    assert uses["slices"].model == SLICE
    assert (uses["slices"].owner, uses["slices"].team, uses["slices"].sweep) == (
        "U1A1",
        "vision",
        "remembered",
    )


async def test_unmeasured_hour_is_not_covered(source_at) -> None:
    uses, capacity = await source_at(24).hour(START - 3 * HOUR)
    assert (uses, capacity.capacity, capacity.coverage) == ((), 0, 0)


# hour -> pod -> GPUs allocated, and the peak of each that was seen in half an hour
NOW = {
    24: {
        "a/half": (2, [0.8, 0]),
        "b/bursts": (1, [0.9]),
        "b/gap": (2, [0.6, 0.6]),
        "b/restarts": (1, [0.5]),
        "b/second": (1, [0.35]),
        "c/newborn": (1, [0]),
        "c/pulling": (1, []),
    },
    # The exporter of n2 was away for half an hour and has just come back.
    3.85: {
        "a/first": (1, [0.7]),
        "b/bursts": (1, [None]),
        "b/gap": (2, [None, None]),
        "b/restarts": (1, [0.5]),
    },
    # Two exporters on n1.
    9.39: {
        "a/first": (1, [0.7]),
        "a/lazy": (4, [0, 0, 0, 0]),
        "b/bursts": (1, [0.9]),
        "b/gap": (2, [0.6, 0.6]),
        "b/restarts": (1, [0.5]),
        "c/slices": (2, [0.3, 0]),
    },
    # Two kube-state-metrics, and the GPU of n1 that a/first left at noon.
    13.02: {
        "a/lazy": (4, [0, 0, 0, 0]),
        "b/bursts": (1, [0.9]),
        "b/gap": (2, [0.6, 0.6]),
        "b/restarts": (1, [0.5]),
        "b/second": (1, [0.35]),
        "c/slices": (2, [0.3, 0]),
    },
    # a/lazy has ended, and is still listed.
    18.2: {
        "b/bursts": (1, [0.9]),
        "b/gap": (2, [0.6, 0.6]),
        "b/restarts": (1, [0.5]),
        "b/second": (1, [0.35]),
        "c/slices": (2, [0.3, 0]),
    },
}


@pytest.mark.parametrize("hour", NOW)
async def test_snapshot_has_allocated_and_used_gpus(source_at, hour: float) -> None:
    pods = await source_at(hour).pods(HALF_HOUR)
    found = {f"{p.namespace}/{p.pod}": (p.allocated, [gpu.peak for gpu in p.gpus]) for p in pods}
    assert found == {
        pod: (gpus, [peak if not peak else near(peak) for peak in peaks])
        for pod, (gpus, peaks) in NOW[hour].items()
    }


@pytest.mark.parametrize("hour", NOW)
async def test_snapshot_equals_nodes_and_pods_without_history(source_at, hour: float) -> None:
    source = source_at(hour)
    found, pods = await source.snapshot(HALF_HOUR), await source.pods(HALF_HOUR)
    assert found.nodes == await source.nodes()
    assert found.pods == tuple(
        replace(pod, busy_ever=None, gpus=tuple(replace(gpu, p95=None) for gpu in pod.gpus)) for pod in pods
    )


BUSY_LOAD = Load(sm=near(0.4), watts=near(300), memory=70)


async def test_load_is_unknown_where_it_is_not_exported_for_the_whole_window(source_at) -> None:
    pods = {pod.pod: pod for pod in await source_at(23).pods(timedelta(hours=2))}
    assert pods["half"].gpus[0].load == Load(watts=near(300), memory=70)  # SM activity only of an hour
    assert [gpu.load for gpu in pods["restarts"].gpus] == [NO_LOAD]
    pods = {pod.pod: pod for pod in await source_at(19).pods(HALF_HOUR)}
    assert [gpu.load for gpu in pods["slices"].gpus] == [Load(memory=70)] * 2  # power is the card's


async def test_pod_has_all_known_fields(source_at) -> None:
    [half] = [pod for pod in await source_at(24).pods(timedelta(hours=2)) if pod.pod == "half"]
    model = cluster.MODELS["n2"]
    assert half == PodUse(
        namespace="a",
        pod="half",
        node="n2",
        owner="U1A1",
        team="vision",
        sweep="lr-brave-otter",
        started=START + 20 * HOUR,
        allocated=2,
        gpus=(
            Gpu(device="G24", model=model, peak=near(0.8), mean=near(0.8), p95=near(0.8), load=BUSY_LOAD),
            Gpu(device="G25", model=model, peak=0, mean=0, p95=0, load=Load(sm=0, watts=60, memory=70)),
        ),
        busy_ever=True,
    )


@pytest.mark.parametrize(
    ("hour", "pod", "ever"),
    [
        (24, "newborn", False),
        (24, "pulling", None),
        (17, "lazy", False),
        (13.66, "restarts", True),  # idle since its restart, not before
        (23.49, "bursts", True),
        (3.85, "gap", True),  # interpolated from the samples before and after the gap
    ],
)
async def test_never_used_gpu_is_known_or_unknown(source_at, hour, pod, ever) -> None:
    [found] = [each for each in await source_at(hour).pods(timedelta(minutes=8)) if each.pod == pod]
    assert found.busy_ever is ever


async def test_container_restart_resets_the_idle_time(source_at) -> None:
    began = {pod.pod: (pod.started, pod.pod_started) for pod in await source_at(14.1).pods(HALF_HOUR)}
    assert began["restarts"] == (START + 13.5 * HOUR, START)
    assert began["lazy"] == (START + 14 * HOUR, START + 6 * HOUR)
    assert began["second"] == (START + 12 * HOUR, None)
    assert {pod.pod: pod.started for pod in await source_at(24).pods(HALF_HOUR)}["pulling"] is None


async def test_nodes_have_free_unavailable_and_cordoned_gpus(source_at) -> None:
    def node(name: str, allocatable: int, allocated: int, **more: Any) -> NodeUse:
        model = SLICE if name == "n3" else cluster.MODELS[name]
        known = {"physical": cluster.PHYSICAL[name], "allocatable": allocatable, "allocated": allocated}
        return NodeUse(node=name, model=model, **known, **more)

    assert await source_at(13.02).nodes() == (
        node("n1", 8, 6),
        node("n2", 8, 3),
        node("n3", 3, 2),
        node("n4", 2, 0),
    )
    night = await source_at(24).nodes()
    assert night == (
        node("n1", 8, 2),
        node("n2", 8, 6),
        node("n3", 3, 1),
        node("n4", 2, 0, cordoned=True),
    )
    assert [(each.free, each.unavailable) for each in night] == [(6, 0), (2, 0), (2, 1), (0, 0)]


async def test_gpu_error_names_code_and_pod(source_at) -> None:
    assert not any(xid.code for xid in await source_at(12.9).xids())
    xids = await source_at(13.5).xids()
    broken = [xid for xid in xids if xid.code]
    assert {(xid.device, xid.node, xid.code) for xid in broken} == {("G30", "n3", 79)}
    assert "slices" in {xid.pod for xid in broken}  # also a slice that is never allocated


async def test_scrape_interval_is_measured(source_at) -> None:
    source = source_at(24)
    await source.pods(HALF_HOUR)
    assert source._probe._default == cluster.SCRAPE


async def test_doctor_finds_the_series_of_the_figures(prometheus: Prometheus) -> None:
    found = {name: await prometheus.query(query, START + 12 * HOUR) for name, query in METRIC_QUERIES.items()}
    assert {name: round(row.value) > 3 for name, (row,) in found.items()} == dict.fromkeys(
        METRIC_QUERIES, True
    )


async def test_hostile_name_is_escaped(prometheus: Prometheus) -> None:
    names = {'GPU-1"} or vector(1)', "GPU-(", "a\\", "\n", "", "GPU-\N{FIRE}", "GPU-\u00e9", "\x7f"}
    for query in (promql.peak(60, names), promql.samples(60, names), promql.last_models(names - {""})):
        assert await prometheus.query(query, START + 12 * HOUR) == []
    assert await prometheus.sample_times(promql.raw_samples(UTIL, 60, names), START + 12 * HOUR) == []


async def test_hour_without_pods_asks_for_no_container(prometheus: Prometheus) -> None:
    for query in (promql.requested, promql.ram_peak, promql_hour.cpu_mean):
        assert await prometheus.query(query({"b"}), START + 12 * HOUR) != []
        assert await prometheus.query(query(()), START + 12 * HOUR) == []


async def test_prometheus_error_is_reported(prometheus: Prometheus) -> None:
    with pytest.raises(NoGpuDataError, match=r"Prometheus answered 4..: .*(parse error|unexpected token)"):
        await prometheus.query("sum(", START)


async def test_many_names_are_asked_for_in_queries_that_each_server_takes(prometheus: Prometheus) -> None:
    names = {"G24", "G25", *(f"GPU-{uuid5(NAMESPACE_OID, str(number))}" for number in range(400))}
    rows = await prometheus.query_each(partial(promql.samples, 3600), names, START + 24 * HOUR)
    assert sorted((row.gpu, row.pod, row.value) for row in rows) == [
        ("G24", ("a", "half"), 120),
        ("G25", ("a", "half"), 120),
    ]


@pytest.mark.parametrize(("hour", "warned"), WARNED.items())
async def test_warnings_go_to_idle_pods(source_at, hour: float, warned: dict[str, Kind]) -> None:
    """Short bursts, a gap of the exporter, a restart, a pod that lingers; no late scrapes."""
    source, now = source_at(hour), START + hour * HOUR
    held, long = [allocations(await source.pods(over)) for over in (HALF_HOUR, LOW_WINDOW)]
    kinds = {key: classify(each, long[key], IdleThresholds(), now) for key, each in held.items()}
    assert {key: kind for key, kind in kinds.items() if kind is not Kind.FINE} == warned
