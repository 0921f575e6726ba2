"""The busy day again, without Prometheus: pods, nodes and exporters as the API server gives them out."""

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from weakref import WeakSet

import pytest
from redis.asyncio import Redis

from bot.measure.gpus.command import answer
from bot.measure.gpus.models import HOUR, Gpu, HourUse, NodeUse, NoGpuDataError, PodUse
from bot.measure.gpus.pod_owners import OwnerStore
from bot.measure.sources import sampling
from bot.measure.sources.dcgm_source import Sampler, SampleStore, ScrapeSource
from bot.measure.sources.sampling import PodSample, Sample
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.platform.config.teams import Team
from bot.watch.idle.detector import LOW_WINDOW, Kind, allocations, classify
from k8s.api.errors import ApiError, UnreachableError
from k8s.nodes import dcgm
from k8s.nodes.dcgm import NO_LOAD, Load
from k8s.objects import timestamp
from tests.bot.measure.sources.reference_day import cluster as day
from tests.bot.measure.sources.reference_day.expected import WARNED, assert_digest, assert_hours

START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
TEAMS = (Team(name="speech", namespaces=("b",)), Team(name="vision", members=("U1A1",)))
HALF_HOUR, SECOND = timedelta(minutes=30), timedelta(seconds=1)
Objects, Lines = list[dict[str, Any]], list[str]


class DayCluster:
    """The cluster at one hour of the reference day, as far as it is sampled."""

    hour = 0.0
    refuses: tuple[str, ...] = ()

    async def list(
        self, kind: str, namespace: str, *, fields: str = "", only: Callable[[Any], bool] = bool
    ) -> Objects:
        if (kind in self.refuses and not namespace) or namespace in self.refuses:
            raise ApiError(403, "Forbidden", f"cannot list {kind}")
        if kind == "Node":
            return [self._node(name) for name in day.PHYSICAL]
        if kind == "PodMetrics":
            return [self._metrics(pod) for pod in day.PODS if pod.phase(self.hour) == "Running"]
        if kind == "ResourceSlice":
            raise ApiError(404, "", "404 page not found")
        pods = [self._pod(pod) for pod in day.PODS if pod.phase(self.hour)] + self._exporters()
        return [pod for pod in pods if namespace in ("", pod["metadata"]["namespace"]) and only(pod)]

    async def proxy(self, namespace: str, pod: str, port: int, path: str) -> str:
        assert (namespace, port, path) == ("gpu-operator", 9400, "metrics")
        node = pod.rpartition("-")[2]
        if pod not in day.exporters(node, self.hour):
            raise UnreachableError("no answer")
        return "\n".join(self._lines(node))

    def _lines(self, node: str) -> Lines:
        lines = ["# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).", "# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
        for namespace, pod, gpu, share in day.readings(node, self.hour):
            uuid, _, slice_ = gpu.partition("/")
            labels = f'gpu="0",UUID="{uuid}",pci_bus_id="00000000:65:00.0",device="nvidia0"'
            labels += f',modelName="{day.MODELS[node]}"'
            labels += f',GPU_I_PROFILE="{day.SLICE}",GPU_I_ID="{slice_}"' * bool(slice_)
            labels += f',Hostname="{node}",container="main",namespace="{namespace}",pod="{pod}"'
            lines += [f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {0 if slice_ else 100 * share:g}"]
            profiled = day.profiled(node, self.hour)
            lines += [f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {share:.6f}"] * profiled
            lines += [f"DCGM_FI_DEV_XID_ERRORS{{{labels}}} {day.xid(gpu, self.hour)}"]
            loads = day.loads(node, self.hour, share)
            lines += [f"{metric}{{{labels}}} {value:g}" for metric, value in loads.items()]
        return lines

    def _node(self, name: str) -> dict[str, Any]:
        sizes = {"cpu": "64", "memory": "263842112Ki", "nvidia.com/gpu": str(day.PHYSICAL[name])}
        left = sizes | {"nvidia.com/gpu": str(day.allocatable(name, self.hour))}
        ready = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]
        spec = {"unschedulable": True} if day.cordoned(name, self.hour) else {}
        status = {"capacity": sizes, "allocatable": left, "conditions": ready}
        return {"metadata": {"name": name}, "spec": spec, "status": status}

    def _pod(self, pod: day.Pod) -> dict[str, Any]:
        namespace, name = pod.pod.split("/")
        sizes = {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": str(len(pod.gpus))}
        sidecar = {"name": "metrics-logger-and-collector", "resources": {"requests": {"cpu": "50m"}}}
        main = {"name": "main", "resources": {"requests": sizes, "limits": sizes}}
        labels = {"sweepbot/sweep": pod.sweep, "sweepbot/owner": "U1A1"} if pod.sweep else {}
        since = timestamp(START + pod.started(self.hour) * HOUR)
        phase = pod.phase(self.hour)
        state = {"running": {"startedAt": since}} if phase == "Running" else {"waiting": {}}
        main_status = {"name": "main", "state": state, "restartCount": pod.restarted(self.hour)}
        return {
            "metadata": {
                "namespace": namespace,
                "name": name,
                "labels": labels,
                "creationTimestamp": timestamp(START + pod.begin * HOUR),
            },
            "spec": {"containers": [main, sidecar]} | ({"nodeName": pod.node} if pod.node else {}),
            "status": {
                "phase": phase,
                "startTime": timestamp(START + pod.begin * HOUR),
                "containerStatuses": [main_status],
            },
        }

    def _exporters(self) -> Objects:
        return [
            {
                "metadata": {
                    "namespace": "gpu-operator",
                    "name": f"dcgm-{age}-{node}",
                    "labels": {"app": "nvidia-dcgm-exporter"},
                },
                "spec": {"containers": [{"name": "exporter"}], "nodeName": node},
                "status": {"phase": "Running"},
            }
            for age in ("old", "new")
            for node in day.PHYSICAL
        ]

    def _metrics(self, pod: day.Pod) -> dict[str, Any]:
        namespace, name = pod.pod.split("/")
        memory = "12Gi" if 23 <= self.hour < 23.1 else "4194304Ki"
        main = {"name": "main", "usage": {"cpu": "999876543n", "memory": memory}}
        sidecar = {"name": "metrics-logger-and-collector", "usage": {"cpu": "3", "memory": "1Gi"}}
        return {"metadata": {"namespace": namespace, "name": name}, "containers": [main, sidecar]}


class Watched:
    """A worker samples every `step` seconds; `until`: an hour of the day."""

    def __init__(self, redis: Redis, step: int) -> None:
        self.cluster, self.step, self.tick = DayCluster(), step, 0
        self.kept = SampleStore(redis)
        self.sampler = Sampler(self.cluster, lambda: ["a"], OwnerStore(redis, lambda: TEAMS))  # type: ignore[arg-type]
        self.source = ScrapeSource(self.kept, lambda: START + self.cluster.hour * HOUR)

    async def until(self, hour: float) -> ScrapeSource:
        while (self.tick + self.step) / 3600 <= hour + 1e-9:
            self.tick += self.step
            self.cluster.hour = (self.tick - self.step / 2) / 3600
            at = START + timedelta(seconds=self.tick)
            await self.kept.save(await self.sampler.sample(at, self.step))
        self.cluster.hour = self.tick / 3600
        return self.source

    def skip(self, hour: float) -> None:
        self.tick = round(hour * 3600)


@pytest.fixture(scope="module", autouse=True)
def equal_pages_are_parsed_once() -> Iterator[None]:
    """Most pages of the day are equal; to parse each of the 7,000 takes a third of the CPU time."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("read_exporter", "read_errors"):
            patch.setattr(dcgm, name, cache(getattr(dcgm, name)))
        yield


@pytest.fixture
def watched(redis: Redis) -> Watched:
    return Watched(redis, 180)


def near(exact: float) -> Any:
    return pytest.approx(exact, rel=0.01, abs=1e-9)


@pytest.mark.slow
async def test_hours_equal_the_reference_day(redis: Redis) -> None:
    watched, hours = Watched(redis, 60), []
    for number in range(24):
        source = await watched.until(number + 1)
        hours.append(await source.hour(START + number * HOUR))
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for use in (use for uses, _ in hours for use in uses):
        figures = (use.allocated, use.observed, use.used, use.idle)
        so_far = sums[f"{use.namespace}/{use.pod}"]
        sums[f"{use.namespace}/{use.pod}"] = [sum(pair) for pair in zip(so_far, figures, strict=True)]
    assert sums == {pod: [near(each) for each in exact] for pod, exact in day.EXACT.items()}
    capacity = [capacity for _, capacity in hours]
    assert sum(each.capacity for each in capacity) == near(day.CAPACITY)
    assert sum(each.allocated for each in capacity) == near(sum(exact[0] for exact in day.EXACT.values()))
    assert sum(each.unhealthy for each in capacity) == near(day.LOST + day.CLOSED)
    assert sum(each.closed for each in capacity) == near(day.CLOSED)
    assert sum(each.waited for each in capacity) == near(day.WAITED)
    assert [each.coverage for each in capacity] == [near(1)] * 24
    assert_hours(hours)
    assert_digest(START, hours)


async def test_snapshot_has_allocated_and_used_gpus(watched: Watched) -> None:
    watched.skip(17.4)
    pods = await (await watched.until(18.2)).pods(HALF_HOUR)
    found = {f"{p.namespace}/{p.pod}": (p.allocated, [gpu.peak for gpu in p.gpus]) for p in pods}
    assert found == {
        "b/bursts": (1, [0.9]),
        "b/gap": (2, [0.6, 0.6]),
        "b/restarts": (1, [0.5]),
        "b/second": (1, [0.35]),
        "c/slices": (2, [0.3, 0]),
    }


async def test_missing_metrics_are_unknown_and_the_node_keeps_its_model(watched: Watched) -> None:
    watched.skip(3)
    pods = {pod.pod: pod for pod in await (await watched.until(3.8)).pods(HALF_HOUR)}
    assert [gpu.peak for gpu in pods["gap"].gpus] == []
    assert pods["gap"].busy_ever is True
    assert [gpu.peak for gpu in pods["restarts"].gpus] == [0.5]
    watched.skip(3.1)
    source = await watched.until(3.8)
    assert {node.node: node.model for node in await source.nodes()}["n2"] == day.MODELS["n2"]
    last = (await watched.kept.since(START))[-1]
    # Of an hour in which it never answered.
    uses, _ = sampling.hour([replace(last, at=START + 4 * HOUR)], START + 3 * HOUR)
    assert {use.pod: use.model for use in uses}["gap"] == day.MODELS["n2"]


async def test_gpu_of_two_exporters_is_as_busy_as_the_one_that_can_profile_it_says(redis: Redis) -> None:
    class SecondCannotProfile(DayCluster):
        """DCGM's profiling counters are for one client; another one reads 0."""

        hour = 10.0

        async def proxy(self, namespace: str, pod: str, port: int, path: str) -> str:
            text = await super().proxy(namespace, pod, port, path)
            return re.sub(r"(ACTIVE.*) [\d.]+$", r"\1 0", text, flags=re.MULTILINE) if "new" in pod else text

    cluster: Any = SecondCannotProfile()
    sample = await Sampler(cluster, lambda: ("sweeps",), OwnerStore(redis, lambda: TEAMS)).sample(START, 30)
    peaks = {pod.use.pod: [gpu.peak for gpu in pod.use.gpus] for pod in sample.pods}
    assert peaks["first"] == [0.7]


@pytest.mark.parametrize(
    ("since", "hour", "pod", "ever"),
    [
        (23.8, 24, "newborn", False),
        (23.8, 24, "pulling", None),
        (5.9, 7, "lazy", False),
        (8, 9, "lazy", None),  # no samples of its first two hours
        (13, 13.66, "restarts", True),
        (23, 23.4, "bursts", True),
    ],
)
async def test_never_used_gpu_is_known_or_unknown(
    watched: Watched, since: float, hour: float, pod: str, ever: bool | None
) -> None:
    watched.skip(since)
    [found] = [p for p in await (await watched.until(hour)).pods(timedelta(minutes=8)) if p.pod == pod]
    assert found.busy_ever is ever


async def test_pod_of_the_evening_has_all_known_fields_and_its_node_free_gpus(watched: Watched) -> None:
    watched.skip(22.9)
    pods = {pod.pod: pod for pod in await (await watched.until(24)).pods(timedelta(hours=1))}
    half = pods["half"]
    assert (half.owner, half.team, half.sweep) == ("U1A1", "vision", "lr-brave-otter")
    assert half.started == START + 20 * HOUR
    assert pods["pulling"].started is None
    assert pods["gap"].team == "speech"
    watched.skip(23.9)
    nodes = await (await watched.until(24)).nodes()
    [slices] = [node for node in nodes if node.node == "n3"]
    model = f"{day.MODELS['n3']} MIG {day.SLICE}"
    assert slices == NodeUse(node="n3", model=model, physical=4, allocatable=3, allocated=1)
    assert [(node.free, node.unavailable) for node in nodes] == [(6, 0), (2, 0), (2, 1), (0, 0)]


@pytest.mark.parametrize(("hour", "sm"), [(24, near(0.4)), (23, None)])
async def test_load_is_measured_where_it_is_exported_for_the_whole_window(
    watched: Watched, hour: float, sm: Any
) -> None:
    watched.skip(hour - 2)
    pods = {pod.pod: pod for pod in await (await watched.until(hour)).pods(timedelta(hours=2))}
    assert pods["half"].gpus[0].load == Load(sm=sm, watts=near(300), memory=70)
    assert [gpu.load for gpu in pods["restarts"].gpus] == [NO_LOAD]


async def test_power_of_a_card_is_not_that_of_its_slices(watched: Watched) -> None:
    watched.skip(18)
    pods = {pod.pod: pod for pod in await (await watched.until(19)).pods(HALF_HOUR)}
    assert [gpu.load for gpu in pods["slices"].gpus] == [Load(memory=70)] * 2


@pytest.mark.parametrize(("hour", "warned"), WARNED.items())
async def test_warnings_go_to_idle_pods(redis: Redis, hour: float, warned: dict[str, Kind]) -> None:
    watched = Watched(redis, 240)
    watched.skip(max(0, hour - 3))
    source, now = await watched.until(hour), START + hour * HOUR
    held, long = [allocations(await source.pods(over)) for over in (HALF_HOUR, LOW_WINDOW)]
    kinds = {key: classify(each, long[key], IdleThresholds(), now) for key, each in held.items()}
    seen = {key: kind for key, kind in kinds.items() if kind is not Kind.FINE}
    # A pod older than the samples may have used its GPU before them: idle, and not "never used".
    if hour > 9:
        warned = {key: Kind.IDLE if kind is Kind.UNUSED else kind for key, kind in warned.items()}
    assert seen == warned


async def test_gpu_error_names_code_and_pod(watched: Watched) -> None:
    watched.skip(13.5)
    xids = await (await watched.until(13.6)).xids()
    broken = [xid for xid in xids if xid.code]
    assert {(xid.device, xid.node, xid.code) for xid in broken} == {("G30", "n3", 79)}
    assert "slices" in {xid.pod for xid in broken}  # also a slice that is never allocated


async def test_hour_sampled_in_part_reports_its_coverage(watched: Watched) -> None:
    watched.skip(7.25)
    _, capacity = await (await watched.until(8)).hour(START + 7 * HOUR)
    assert (capacity.coverage, capacity.capacity) == (0.75, near(0.75 * 21))


async def test_missing_permission_limits_the_source_to_sweeps(watched: Watched) -> None:
    watched.cluster.refuses = ("Pod", "Node", "PodMetrics")
    watched.skip(22)
    source = await watched.until(22.6)
    assert [pod.pod for pod in await source.pods(HALF_HOUR)] == ["half"]
    with pytest.raises(NoGpuDataError, match="no nodes could be listed"):
        await source.nodes()
    text = answer("free", await source.snapshot(HALF_HOUR), "U1")
    assert text.startswith("GPU nodes: no data. *Fix:*")
    await watched.kept.save(Sample(at=START + 23 * HOUR, step=60, pods=(), nodes=(), nodes_unknown=True))
    watched.cluster.hour = 23
    with pytest.raises(NoGpuDataError, match="no nodes could be listed"):
        await source.snapshot(HALF_HOUR)


async def test_forbidden_namespace_hides_no_other(redis: Redis, caplog: Any) -> None:
    cluster, owners = DayCluster(), OwnerStore(redis, lambda: TEAMS)
    cluster.hour, cluster.refuses = 22.6, ("Pod", "Node", "PodMetrics", "b")
    found = await Sampler(cluster, lambda: ["a", "b"], owners).holders()  # type: ignore[arg-type]
    assert {pod for _, pod in found} == {"half"}
    assert "can't read Pod in b" in caplog.text
    with pytest.raises(ApiError):  # its own it has to see
        await Sampler(cluster, lambda: ["b", "a"], owners).holders()  # type: ignore[arg-type]


class IdleCluster(DayCluster):
    """Exporters, and pods with GPUs once they are `wanted`; counts what is read of the nodes."""

    def __init__(self) -> None:
        self.hour, self.wanted, self.reads = 17.5, False, Counter[str]()

    async def list(self, kind: str, namespace: str, **wanted: Any) -> Objects:
        self.reads[kind] += 1
        found = await super().list(kind, namespace, **wanted)
        is_hidden = kind == "Pod" and not self.wanted
        return [pod for pod in found if "app" in pod["metadata"]["labels"]] if is_hidden else found

    async def proxy(self, *where: Any) -> str:
        self.reads["metrics"] += 1
        return await super().proxy(*where)


async def test_nodes_are_read_every_five_minutes_until_a_pod_has_gpus(redis: Redis) -> None:
    """Samples are taken as often as before: a figure without one in five minutes is missing."""
    watched = Watched(redis, 30)
    cluster = watched.cluster = IdleCluster()
    watched.sampler = Sampler(cluster, lambda: ["a"], OwnerStore(redis, lambda: TEAMS))  # type: ignore[arg-type]
    samples = [await watched.sampler.sample(START + 30 * n * SECOND, 30) for n in range(20)]
    assert [sample.at for sample in samples] == [START + 30 * n * SECOND for n in range(20)]
    assert len({sample.nodes for sample in samples}) == 1
    assert samples[0].nodes
    assert (cluster.reads["Node"], cluster.reads["Pod"]) == (2, 20)
    scraped = cluster.reads["metrics"]
    cluster.wanted = True
    busy = [await watched.sampler.sample(START + 30 * n * SECOND, 30) for n in (20, 21)]
    assert all(sample.pods for sample in busy)
    assert (cluster.reads["Node"], cluster.reads["metrics"]) == (4, 2 * scraped)


async def test_clock_that_is_set_back_keeps_no_nodes_of_before(redis: Redis) -> None:
    watched = Watched(redis, 30)
    cluster = watched.cluster = IdleCluster()
    watched.sampler = Sampler(cluster, lambda: ["a"], OwnerStore(redis, lambda: TEAMS))  # type: ignore[arg-type]
    for at in (START + 18 * HOUR, START + 17.5 * HOUR):
        await watched.kept.save(await watched.sampler.sample(at, 30))
    assert cluster.reads["Node"] == 2
    [only] = await watched.kept.since(START)
    assert only.at == START + 17.5 * HOUR
    cluster.hour = 17.5
    assert await watched.source.nodes() == only.nodes


async def test_no_samples_means_no_data(watched: Watched) -> None:
    with pytest.raises(NoGpuDataError, match="no GPU sample for 5 min"):
        await watched.source.pods(HALF_HOUR)
    source = await watched.until(0.1)
    watched.cluster.hour = 0.2
    with pytest.raises(NoGpuDataError, match="no GPU sample for 5 min"):
        await source.nodes()


@pytest.mark.parametrize(("first", "then"), [(60, 600), (600, 60)])
async def test_hour_is_complete_after_a_change_of_interval(redis: Redis, first: int, then: int) -> None:
    watched = Watched(redis, first)
    watched.skip(7)
    await watched.until(7.5)
    watched.step = then
    _, capacity = await (await watched.until(8)).hour(START + 7 * HOUR)
    assert (capacity.coverage, capacity.capacity) == (near(1), near(21))


async def test_source_keeps_three_hours(watched: Watched, redis: Redis, no_litter: None) -> None:
    watched.step = 300
    await watched.until(3.5)
    [key] = [key for key in await redis.keys() if b"samples" in key]
    assert await redis.llen(key) == 37


async def test_hours_of_samples_are_read_one_at_a_time(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 10,000 GPUs one sample has a thousand pods, and a window of 90 minutes 180 samples."""
    watched.skip(12)
    source = await watched.until(13)
    load, living, most = sampling.load, WeakSet[Sample](), 0

    def counted(text: bytes) -> Sample:
        nonlocal most
        sample = load(text)
        living.add(sample)
        most = max(most, len(living))
        return sample

    monkeypatch.setattr(sampling, "load", counted)
    assert (await source.snapshot(HALF_HOUR)).pods
    assert (await source.hour(START + 12 * HOUR))[0]
    assert 1 <= most <= 3


async def test_others_wait_for_the_list_of_the_watch(redis: Redis) -> None:
    """At 10,000 pods, each list is 60 MB."""

    class Listing(DayCluster):
        hour, lists = 10.0, 0
        forbidden = False

        async def list(self, kind: str, *args: Any, **wanted: Any) -> Any:
            self.lists += kind == "Pod"
            return await super().list(kind, *args, **wanted)

        async def pages(self, *_: Any, **__: Any) -> Any:
            for _ in range(5):
                await asyncio.sleep(0)
            if self.forbidden:
                raise ApiError(403, "Forbidden", "no")
            yield await super().list("Pod", ""), "1"

        async def watch(self, *_: Any, on_open: Any, **__: Any) -> Any:
            on_open()
            await asyncio.Event().wait()
            yield

    for forbidden in (False, True):
        cluster: Any = Listing()
        cluster.forbidden = forbidden
        sampler = Sampler(cluster, lambda: ["a"], OwnerStore(redis, lambda: TEAMS))
        watch = asyncio.create_task(sampler.watch())
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            found = await asyncio.gather(*(sampler.holders() for _ in range(3)))
        assert [set(each) for each in found] == [set(await sampler.holders())] * 3 != [set()] * 3
        assert cluster.lists == (4 if forbidden else 0)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await sampler.holders()  # without the watch, listed
        assert cluster.lists == (5 if forbidden else 1)


@pytest.mark.parametrize("many", [Gpu, PodUse, HourUse, PodSample])
def test_memory_of_100_000_readings_is_limited(many: type) -> None:
    assert many.__dictoffset__ == 0
