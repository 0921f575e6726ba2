"""Queries to Prometheus and its responses; their figures are tested in test_prometheus_source."""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from bot.measure.gpus.models import HALF_HOUR, NoGpuDataError
from bot.measure.gpus.pod_owners import UNOWNED, Ownership, OwnerStore, by_labels
from bot.measure.sources import promql, promql_hour
from bot.measure.sources.collector import BACKFILL
from bot.measure.sources.prometheus import LONGEST_QUERY, Prometheus, Row, Values, parts_of
from bot.measure.sources.prometheus_source import PrometheusSource
from bot.measure.sources.scrape_interval import IntervalProbe
from bot.measure.sources.series_kinds import LOADS_IN_USE, NAMINGS, NAMINGS_IN_USE, SeriesKinds
from bot.platform.config.teams import Team
from k8s.nodes.dcgm import ENGINE, MEMORY, POWER, SM, UTIL

AT = datetime(2026, 11, 20, 12, 0, 0, 500_000, tzinfo=UTC)
A_NODE = [Row({}, 1.0)]
NO_ROWS = {promql.OWNER_LABELS, promql.RESTARTED_POD_STARTED}
Toy = Callable[[web.Response | Callable[[str], web.Response]], Awaitable[Prometheus]]


@pytest.fixture
async def toy() -> AsyncIterator[tuple[Toy, list[tuple[str, dict[str, Any]]]]]:
    """`await toy(answer)`: a client of a Prometheus with this response, and its requests."""
    asked: list[tuple[str, dict[str, Any]]] = []
    closing = []

    async def start(answer: web.Response | Callable[[str], web.Response]) -> Prometheus:
        async def say(request: web.Request) -> web.Response:
            form = dict(await request.post())
            asked.append((request.headers.get("Authorization", ""), form))
            return answer(str(form["query"])) if callable(answer) else answer

        app = web.Application()
        app.router.add_post("/under/api/v1/query", say)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client = Prometheus(f"http://127.0.0.1:{runner.addresses[0][1]}/under", "s3cret")
        closing.extend([client.close, runner.cleanup])
        return client

    yield start, asked
    for close in closing:
        await close()


def vector(*values: str) -> web.Response:
    rows = [{"metric": {"pod": str(number)}, "value": [1, value]} for number, value in enumerate(values)]
    body = {"status": "success", "data": {"resultType": "vector", "result": rows}}
    return web.json_response(body)


async def test_query_rows_have_labels_and_nan_is_none_and_no_answer_is_an_error(toy: Any) -> None:
    start, asked = toy
    rows = await (await start(vector("0.5", "NaN", "+Inf", "1e3"))).query("up", AT)
    assert rows == [Row({"pod": "0"}, 0.5), Row({"pod": "3"}, 1000.0)]
    assert asked == [("Bearer s3cret", {"query": "up", "time": f"{AT.timestamp():.3f}", "nocache": "1"})]
    client = Prometheus("http://127.0.0.1:1")
    with pytest.raises(NoGpuDataError, match="Prometheus doesn't answer: "):
        await client.query("up", AT)
    await client.close()


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("count(kube_node_info)", 'count(kube_node_info{cluster="lab"})'),
        ('kube_pod_info{pod=~"a{2}"}', 'kube_pod_info{cluster="lab",pod=~"a{2}"}'),
        ("kube_pod_info{}[5m]", 'kube_pod_info{cluster="lab",}[5m]'),
        (f"{UTIL} * on (pod) kube_x {{}}", f'{UTIL}{{cluster="lab"}} * on (pod) kube_x {{cluster="lab",}}'),
        (f'absent(up, "\\"{UTIL}{{")', f'absent(up, "\\"{UTIL}{{")'),
    ],
)
async def test_every_selector_has_the_labels_of_the_cluster(toy: Any, query: str, asked: str) -> None:
    start, forms = toy
    server = await start(vector("1"))
    client = Prometheus(server._url.removesuffix("/api/v1/query"), labels='cluster="lab"')
    await client.query(query, AT)
    await client.close()
    assert forms[-1][1]["query"] == asked


async def test_server_that_refuses_other_parameters_gets_only_those_of_prometheus(toy: Any) -> None:
    """As Google's Managed Prometheus, by its words for a parameter of Thanos (pyrra-dev/pyrra#1063)."""
    start, asked = toy

    def answer(query: str) -> web.Response:
        if unknown := {*asked[-1][1]} - {"query", "time", "timeout", "start", "end", "step"}:
            name = (
                f'Invalid JSON payload received. Unknown name "{min(unknown)}": Cannot bind query parameter.'
            )
            return web.json_response({"error": {"code": 400, "message": name}}, status=400)
        return vector("0.5")

    client = await start(answer)
    for _ in range(2):
        assert await client.query("up", AT) == [Row({"pod": "0"}, 0.5)]
    assert ["nocache" in form for _, form in asked] == [True, False, False]


@pytest.mark.parametrize(
    ("status", "text", "reported"),
    [
        (
            422,
            '{"status":"error","errorType":"execution","error":"too many samples"}',
            "422: too many samples",
        ),
        (503, "no healthy upstream", "503: no healthy upstream"),
        (200, "<html>Log in</html>", "200: <html>Log in</html>"),
        (200, "[]", "200: []"),
    ],
)
async def test_query_invalid_response_is_an_error(toy: Any, status: int, text: str, reported: str) -> None:
    client = await toy[0](web.Response(status=status, text=text))
    with pytest.raises(NoGpuDataError, match=f"Prometheus answered {reported}$".replace("[", r"\[")):
        await client.query("up", AT)


@pytest.mark.parametrize("ask", [Prometheus.query, Prometheus.sample_times])
@pytest.mark.parametrize(
    "result",
    ["null", "[1]", '[{"metric":{}}]', '[{"metric":[1],"value":[1,"2"],"values":[]}]', "[" * 99_999],
)
async def test_query_successful_response_of_another_shape_is_an_error(
    toy: Any, ask: Any, result: str
) -> None:
    client = await toy[0](web.Response(text=f'{{"status":"success","data":{{"result":{result}}}}}'))
    with pytest.raises(NoGpuDataError, match="Prometheus answered 200: "):
        await ask(client, "up", AT)


@pytest.mark.parametrize(
    ("labels", "device", "model"),
    [
        ({"UUID": "GPU-1", "modelName": "NVIDIA A10"}, "GPU-1", "NVIDIA A10"),
        (
            {"UUID": "GPU-1", "GPU_I_ID": "7", "GPU_I_PROFILE": "1g.5gb", "modelName": "NVIDIA A100"},
            "GPU-1/7",
            "NVIDIA A100 MIG 1g.5gb",
        ),
        ({}, "", ""),
    ],
)
def test_mig_slice_is_a_separate_device(labels: dict[str, str], device: str, model: str) -> None:
    row = Row(labels | {"namespace": "a", "pod": "b"}, 1.0)
    assert row.device == ("a", "b", device, model)


def test_queries_contain_windows_devices_and_characters_that_promql_cannot_escape() -> None:
    which = 'UUID=~"G1|G2",GPU_I_ID="",UUID="",exported_namespace="",exported_pod="",pod!=""'
    assert f"max_over_time(DCGM_FI_DEV_GPU_UTIL{{{which}}}[1800s])" in promql.peak(1800, ("G1", "G2"))
    assert (
        'max_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID!="",exported_namespace!="",exported_pod!=""}[14999ms])'
        in promql.idle_half(15, NAMINGS, None)
    )
    assert "[1799s:15s]) >= 96 and" in promql.idle_half(15, NAMINGS, None)
    kinds = SeriesKinds(engine_only=True)
    for query in (promql.peak(60, kinds=kinds), promql_hour.sum_of_half(30, engine_only=True)):
        assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in query
        assert "GPU_UTIL" not in query
    assert 'UUID=~"GPU\\\\-\N{FIRE}"' in promql.peak(60, {"GPU-\N{FIRE}"})


def test_queries_of_parts_name_each_gpu_once_and_are_short_enough() -> None:
    names = [f"GPU-{number}-{'9' * (number % 50)}" for number in range(1000)]
    parts = parts_of("|".join, names, LONGEST_QUERY)
    assert "|".join(parts) == "|".join(names)
    assert 1 < len(parts) < 8
    assert max(map(len, parts)) <= LONGEST_QUERY
    assert parts_of("|".join, ["x" * 99_999], LONGEST_QUERY) == ["x" * 99_999]
    assert parts_of("|".join, names, math.inf) == ["|".join(names)]
    assert parts_of(str, None, 3) == ["None"]
    assert parts_of("|".join, (), 1) == [""]


@pytest.mark.parametrize(
    "error",
    [
        "too long query; length=18000, maxQueryLen=16384",
        "the raw query size in bytes exceeds the limit (err-mimir-max-query-expression-size-bytes)",
    ],
)
async def test_names_are_queried_in_parts_once_the_server_has_refused_them_together(
    toy: Any, error: str
) -> None:
    start, asked = toy
    names = [f"GPU-{number:05}" for number in range(2000)]

    def answer(query: str) -> web.Response:
        if len(query) > LONGEST_QUERY or "odd" in query:
            return web.json_response({"status": "error", "error": error}, status=422)
        return vector(*(name[4:] for name in query.split("|")))

    prometheus = await start(answer)
    for queries in (6, 4):
        for found in await asyncio.gather(*(prometheus.query_each("|".join, names, AT) for _ in range(2))):
            assert [row.value for row in found] == [*range(2000)]
        assert len(asked) == queries
        asked.clear()
    with pytest.raises(NoGpuDataError, match=r"Prometheus answered 422: t[a-z ]+"):
        await prometheus.query_each("|".join, ["odd"], AT)
    assert len(asked) == 1


@pytest.mark.parametrize(("age", "ever"), [(23, False), (49, None)])
async def test_pod_older_than_the_day_is_not_called_unused(redis: Any, age: int, ever: bool | None) -> None:
    labels = {"namespace": "sweeps", "pod": "a", "node": "n1", "UUID": "GPU-1"}

    class Quiet(Prometheus):
        """All is 0, with every sample there."""

        async def query(self, query: str, at: datetime) -> list[Row]:
            known = {promql.ALLOCATED: 1.0, promql.POD_STARTED: at.timestamp() - age * 3600}
            if query.startswith("sum by (namespace, pod) (") or query in NO_ROWS:
                return []
            return [Row(labels, known.get(query, 1e9 if "count_over_time" in query else 0.0))]

    quiet = Quiet("http://127.0.0.1:1")
    [pod] = await PrometheusSource(quiet, OwnerStore(redis, tuple), lambda: AT, 30).pods(HALF_HOUR)
    await quiet.close()
    assert pod.busy_ever is ever


TEAMS = (Team(name="vision", namespaces=("vision",)), Team(name="speech", members=("U1",)))


async def test_owner_of_a_deleted_pod_is_remembered(redis: Any, no_litter: None) -> None:
    labels = {"sweepbot/owner": "U1", "sweepbot/sweep": "lr-brave-otter", "katib.kubeflow.org/trial": "t-1"}
    mine = by_labels(labels)
    assert mine == Ownership(owner="U1", sweep="lr-brave-otter", trial="t-1")
    await OwnerStore(redis, lambda: TEAMS).save(AT, {("sweeps", "t-1-x"): mine, ("sweeps", "none"): UNOWNED})
    pods = [("sweeps", "t-1-x"), ("vision", "notebook"), ("sweeps", "none")]
    assert await OwnerStore(redis, lambda: TEAMS).owners(AT, pods, {}) == {
        pods[0]: Ownership(owner="U1", team="speech", sweep="lr-brave-otter", trial="t-1"),
        pods[1]: Ownership(team="vision"),
        pods[2]: UNOWNED,
    }


async def test_owner_is_remembered_at_midnight_and_forgotten_when_no_hour_needs_it(redis: Any) -> None:
    pod, mine = ("sweeps", "t-1-x"), Ownership(owner="U1", sweep="lr-brave-otter", trial="t-1")
    late = AT.replace(hour=23, minute=59, second=30)
    await OwnerStore(redis, tuple).save(late, {pod: mine})
    assert await OwnerStore(redis, tuple).owners(late + timedelta(seconds=31), [pod], {}) == {pod: mine}
    assert await OwnerStore(redis, tuple).owners(late + timedelta(days=2), [pod], {}) == {pod: UNOWNED}
    pod = ("vision", "a")
    await OwnerStore(redis, lambda: TEAMS).save(AT, {pod: Ownership(owner="U1")})
    owners = {pod: Ownership(owner="U2", team="robots")}
    assert await OwnerStore(redis, lambda: TEAMS).owners(AT, [pod], owners) == owners
    await OwnerStore(redis, tuple).save(AT, {("sweeps", "t-1-x"): Ownership(owner="U1")})
    [key] = await redis.keys()
    assert BACKFILL.days * 86400 < await redis.ttl(key) <= (BACKFILL.days + 1) * 86400


async def test_prometheus_source_queries_intervals_models_and_metrics_once_in_ten_minutes(redis: Any) -> None:
    asked: list[str] = []
    now = [AT]

    class Counting(Prometheus):
        async def query(self, query: str, at: datetime) -> list[Row]:
            asked.append(query)
            return A_NODE if query == promql.ANY_NODE else []

    source = PrometheusSource(Counting("http://127.0.0.1:1"), OwnerStore(redis, tuple), lambda: now[0])
    seldom = {
        promql.samples_of_host(ENGINE, 600),
        promql.MODELS,
        promql.UTIL_ONLY,
        NAMINGS_IN_USE,
        LOADS_IN_USE,
    }
    for minutes, expected in ((0, seldom), (9, set()), (11, seldom)):
        now[0] = AT + timedelta(minutes=minutes)
        asked.clear()
        await source.snapshot(HALF_HOUR)
        assert {*asked} & seldom == expected
        assert len(asked) == len({*asked})
        assert promql.p95(1800) not in asked


async def test_no_known_node_is_no_data(redis: Any) -> None:
    """Without kube-state-metrics there is no data: not "no GPUs", and not "none free"."""

    class Empty(Prometheus):
        async def query(self, query: str, at: datetime) -> list[Row]:
            return []

    source = PrometheusSource(Empty("http://127.0.0.1:1"), OwnerStore(redis, tuple), lambda: AT, 30)
    measures: list[Callable[[], Awaitable[Any]]] = [
        partial(source.snapshot, HALF_HOUR),
        partial(source.pods, HALF_HOUR),
        source.nodes,
    ]
    for measure in measures:
        with pytest.raises(NoGpuDataError, match="kube-state-metrics"):
            await measure()


async def test_gpus_are_queried_only_by_the_labels_that_their_series_have(redis: Any) -> None:
    asked: list[str] = []

    class Named(Prometheus):
        async def query(self, query: str, at: datetime) -> list[Row]:
            asked.append(query)
            return {NAMINGS_IN_USE: [Row({"naming": "2"}, 8.0)], promql.ANY_NODE: A_NODE}.get(query, [])

    source = PrometheusSource(Named("http://127.0.0.1:1"), OwnerStore(redis, tuple), lambda: AT, 30)
    await source.snapshot(HALF_HOUR)
    assert promql.total(1800, SeriesKinds(True, NAMINGS[2:3])) in asked
    assert promql.total(1800, SeriesKinds(True)) not in asked


async def test_only_exported_measures_are_queried_all_of_them_at_once(redis: Any) -> None:
    asked: list[str] = []

    class Exporting(Prometheus):
        async def query(self, query: str, at: datetime) -> list[Row]:
            asked.append(query)
            exported = [Row({"metric": name}, 8.0) for name in (SM, MEMORY)]
            return {LOADS_IN_USE: exported, promql.ANY_NODE: A_NODE}.get(query, [])

    source = PrometheusSource(Exporting("http://127.0.0.1:1"), OwnerStore(redis, tuple), lambda: AT, 30)
    await source.snapshot(HALF_HOUR)
    [query] = [each for each in asked if SM in each and each != LOADS_IN_USE]
    wanted = (f"avg_over_time({SM}{{", MEMORY, f"count_over_time({SM}{{", POWER)
    assert [each in query for each in wanted] == [True, True, False, False]
    asked.clear()
    await source.pods(HALF_HOUR)
    [query] = [each for each in asked if SM in each and each != LOADS_IN_USE]
    assert [each in query for each in wanted] == [True, True, True, False]


@pytest.mark.parametrize(
    ("present", "queried"),
    [
        (set(), set()),
        ({promql.ANY_LOST}, {promql.LOST_HOURS}),
        ({promql.ANY_CLOSED}, {promql.CLOSED_HOURS}),
        ({promql.ANY_PENDING}, {promql.PENDING_HOURS, promql.LONGEST_WAIT}),
    ],
)
async def test_hour_queries_lost_gpus_closed_nodes_and_pending_pods_only_if_there_were_any(
    redis: Any, present: set[str], queried: set[str]
) -> None:
    asked: set[str] = set()

    class Quiet(Prometheus):
        async def query(self, query: str, at: datetime) -> list[Row]:
            asked.add(query)
            return [Row({}, 1.0)] if query in present | queried else []

        async def at_both(self, query: str, first: datetime, second: datetime) -> list[tuple[Row, Values]]:
            return []

    source = PrometheusSource(Quiet("http://127.0.0.1:1"), OwnerStore(redis, tuple), lambda: AT, 30)
    _, capacity = await source.hour(AT)
    sums = promql.LOST_HOURS, promql.CLOSED_HOURS, promql.PENDING_HOURS
    assert asked & {*sums, promql.LONGEST_WAIT} == queried
    lost = capacity.unhealthy - capacity.closed
    assert (lost, capacity.closed, capacity.waited) == tuple(float(query in queried) for query in sums)


@pytest.mark.parametrize(
    ("more", "partial"),
    [
        ({"warnings": ["receive series from Addr: 10.0.0.7:10901: rpc error"]}, "receive series from Addr"),
        ({"isPartial": True}, "some storage nodes are unavailable"),
        ({"warnings": ["PromQL info: metric might not be a counter"], "infos": ["PromQL info"]}, ""),
        ({"isPartial": False, "warnings": []}, ""),
    ],
)
async def test_query_partial_response_is_an_error(toy: Any, more: dict[str, Any], partial: str) -> None:
    client = await toy[0](web.json_response({"status": "success", "data": {"result": []}} | more))
    if not partial:
        assert await client.query("up", AT) == []
        return
    with pytest.raises(NoGpuDataError, match=f"Prometheus' data is incomplete: {partial}"):
        await client.query("up", AT)


async def test_pod_started_by_a_clock_ahead_is_queried_over_a_valid_window(redis: Any) -> None:
    labels = {"namespace": "sweeps", "pod": "a", "node": "n1", "UUID": "GPU-1"}
    windows: list[int] = []

    class AheadNode(Prometheus):
        """The clock of the pod's node is two minutes ahead."""

        async def query(self, query: str, at: datetime) -> list[Row]:
            windows.extend(int(each) for each in re.findall(r"ACTIVE\{[^}]*\}\[(-?\d+)s\]", query))
            known = {promql.ALLOCATED: 1.0, promql.POD_STARTED: at.timestamp() + 120}
            if query.startswith("sum by (namespace, pod) (") or query in NO_ROWS:
                return []
            return [Row(labels, known.get(query, float("count_over_time" in query)))]

    ahead = AheadNode("http://127.0.0.1:1")
    [pod] = await PrometheusSource(ahead, OwnerStore(redis, tuple), lambda: AT, 30).pods(HALF_HOUR)
    await ahead.close()
    assert pod.started == AT + timedelta(minutes=2)
    assert {*windows} == {1800, 30}


@pytest.mark.parametrize("metric", [ENGINE, UTIL])
async def test_first_pod_of_a_cluster_is_measured_although_its_series_are_new(
    redis: Any, metric: str
) -> None:
    """Without honorLabels, the series of free GPUs have only the labels of their exporter."""
    labels = {"exported_namespace": "sweeps", "exported_pod": "a", "namespace": "gpu", "pod": "dcgm-x"}
    now, running = [AT], [False]

    class Cluster(Prometheus):
        async def query(self, query: str, at: datetime) -> list[Row]:
            if query == NAMINGS_IN_USE:
                return [Row({"naming": each}, 1.0) for each in ("20" if running[0] else "2")]
            if not running[0]:
                return A_NODE if query == promql.ANY_NODE else []
            if query == promql.UTIL_ONLY:
                return [Row({}, 1.0)] if metric == UTIL else []
            if query == promql.ALLOCATED:
                return [Row({"namespace": "sweeps", "pod": "a", "node": "n1"}, 1.0)]
            has_series = re.search(rf'over_time.*{metric}{{[^}}]*exported_pod!=""', query)
            return [Row(labels | {"UUID": "GPU-1"}, 1.0)] if has_series else []

    source = PrometheusSource(Cluster("http://127.0.0.1:1"), OwnerStore(redis, tuple), lambda: now[0], 1800)
    assert (await source.snapshot(HALF_HOUR)).pods == ()
    running[0], now[0] = True, AT + timedelta(minutes=1)
    [pod] = (await source.snapshot(HALF_HOUR)).pods
    assert [gpu.peak for gpu in pod.gpus] == [1.0]


async def test_interval_of_an_exporter_that_two_jobs_scrape_is_that_of_each_job() -> None:
    begin = AT.timestamp() - 600
    series = [
        (Row({"__name__": name, "Hostname": "n1", "UUID": "GPU-1", "job": job, "pod": pod}, 0.0), times)
        for name in (ENGINE, UTIL)
        for job, offset in (("gpu-operator", 0), ("annotations", 5))
        for pod, times in (
            ("first", [begin + offset + 30 * scrape for scrape in range(7)]),
            ("second", [begin + offset + 30 * scrape for scrape in range(7, 20)]),
        )
    ]

    class Twice(Prometheus):
        async def query(self, query: str, at: datetime) -> list[Row]:
            is_even = query == promql.evenly_scraped(ENGINE, 600, 30)  # no: two jobs, so two samples
            return [] if is_even else [Row({"Hostname": "n1", "UUID": "GPU-1"}, 40.0)]

        async def sample_times(self, query: str, at: datetime) -> list[tuple[Row, list[float]]]:
            return series

    twice = Twice("http://127.0.0.1:1")
    probe = IntervalProbe(twice)
    assert (await probe.intervals(AT, 600, await probe.exporters(AT, 600))).of("GPU-1") == 30
    await twice.close()
