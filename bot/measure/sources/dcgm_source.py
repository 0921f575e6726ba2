"""Measure GPU use without Prometheus: scrape dcgm-exporter through the API server, and metrics-server.

    usage:<cluster>:cluster-samples   list: a compressed Sample each, the latest first; expires after a day

One worker takes samples (`collector.py`); every process reads them. There is no other history.
"""

import asyncio
import logging
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from bot.measure.gpus.models import (
    HOUR,
    Gpu,
    HourCapacity,
    HourUse,
    NodeUse,
    NoGpuDataError,
    PodUse,
    Snapshot,
)
from bot.measure.gpus.pod_owners import Ownership, OwnerStore, PodKey, by_labels
from bot.measure.sources import sampling
from bot.measure.sources.sampling import PodSample, Sample
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, UnreachableError
from k8s.api.outage import Outage
from k8s.api.watch import watch_forever
from k8s.nodes import dcgm, gpus
from k8s.nodes.dcgm import Reading, Xid
from k8s.nodes.devices import Devices, with_claims, with_devices
from k8s.nodes.gpu_pods import UNFINISHED_PODS, GpuPod, GpuPods, read_gpu_pod
from k8s.nodes.gpus import NodeDevices, with_share
from k8s.nodes.listed import list_devices
from k8s.objects import Manifest

log = logging.getLogger(__name__)

RETENTION = timedelta(hours=3)  # the longest window in use, and time to write an hour
SAMPLE_MAX_AGE = timedelta(minutes=5)  # without a sample, there is no GPU data
IDLE_INTERVAL = timedelta(minutes=5)  # between reads of the nodes while no pod has or wants a GPU
SCRAPE_CONCURRENCY = 16  # exporters
NO_NODES = "no nodes could be listed; check that the workers have the deploy/usage permissions"
SCRAPE_TIMEOUT = 5.0  # seconds per exporter
NEVER = datetime.min.replace(tzinfo=UTC)


class StoredSamples(Sequence[Sample]):
    """Samples, the oldest first, that are loaded each time they are read: together they can be gigabytes.

    One per time, even if two workers sampled.
    """

    def __init__(self, texts: Iterable[bytes], start: datetime) -> None:
        found = {at: text for text in texts if (at := _taken(text)) > start}
        self._texts = [found[at] for at in sorted(found)]

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: Any) -> Any:
        return sampling.load(zlib.decompress(self._texts[index]))


class SampleStore:
    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._key = redis, f"usage:{cluster}:cluster-samples"

    async def save(self, sample: Sample) -> None:
        merged = sampling.with_history(sample, await self._latest())
        while (newest := await self._texts(0, 0)) and _taken(newest[0]) > sample.at:  # the clock was set back
            await self._redis.lpop(self._key)
        async with self._redis.pipeline(transaction=True) as steps:
            steps.lpush(self._key, zlib.compress(sampling.dump(merged)))
            steps.expire(self._key, timedelta(days=1))
            await steps.execute()
        while (oldest := await self._texts(-1, -1)) and _taken(oldest[0]) < sample.at - RETENTION:
            await self._redis.rpop(self._key)

    async def since(self, start: datetime) -> StoredSamples:
        """Return samples after `start`. Read them in a thread: that can take seconds."""
        latest = await self._latest()
        if latest is None:
            return StoredSamples((), start)
        number = max(1, round((latest.at - start).total_seconds() / latest.step) + 2)
        texts = await self._texts(0, number - 1)
        # The interval is a setting, and could have been shorter before.
        while _taken(texts[-1]) > start and (more := await self._texts(len(texts), len(texts) + number - 1)):
            texts += more
        return StoredSamples(texts, start)

    async def _latest(self) -> Sample | None:
        texts = StoredSamples(await self._texts(0, 0), NEVER)
        return await asyncio.to_thread(lambda: texts[0]) if texts else None

    async def _texts(self, first: int, last: int) -> list[bytes]:
        found: list[Any] = await self._redis.lrange(self._key, first, last)
        return found


def _taken(text: bytes) -> datetime:
    """Return the sample's time; it is the first field, so the rest needn't be decompressed."""
    return datetime.fromisoformat(zlib.decompressobj().decompress(text, 64).decode().split('"', 4)[3])


class ScrapeSource:
    def __init__(self, samples: SampleStore, now: Callable[[], datetime]) -> None:
        self._samples, self._now = samples, now

    async def snapshot(self, window: timedelta) -> Snapshot:
        samples, last = await self._fresh(window)
        pods = await asyncio.to_thread(sampling.pods, samples, window)
        return Snapshot(at=last.at, nodes=last.nodes, pods=pods)

    async def pods(self, window: timedelta) -> tuple[PodUse, ...]:
        samples, _ = await self._fresh(window)
        return await asyncio.to_thread(sampling.pods, samples, window)

    async def nodes(self) -> tuple[NodeUse, ...]:
        _, last = await self._fresh(timedelta(0))
        if last.nodes_unknown:
            raise NoGpuDataError(NO_NODES)
        return last.nodes

    async def xids(self) -> tuple[Xid, ...]:
        _, last = await self._fresh(timedelta(0))
        return last.xids

    async def hour(self, start: datetime) -> tuple[tuple[HourUse, ...], HourCapacity]:
        return await asyncio.to_thread(sampling.hour, await self._samples.since(start), start)

    async def _fresh(self, window: timedelta) -> tuple[Sequence[Sample], Sample]:
        """Return the samples, and the last of them."""
        found = await self._samples.since(self._now() - SAMPLE_MAX_AGE - window)
        last: Sample | None = await asyncio.to_thread(lambda: found[-1]) if found else None
        if last is None or last.at <= self._now() - SAMPLE_MAX_AGE:
            raise NoGpuDataError(
                "no GPU sample for 5 min; check that a worker is running and has the deploy/usage permissions"
            )
        if last.nodes_unknown and not last.pods:
            raise NoGpuDataError(NO_NODES)
        return found, last


class Sampler:
    """Takes samples of the cluster. Missing permissions are logged once; that data is unknown, not idle."""

    def __init__(
        self, cluster: KubernetesClient, namespaces: Callable[[], Sequence[str]], owners: OwnerStore
    ) -> None:
        """`namespaces`: those of the sweeps, the default one first."""
        self._cluster, self._namespaces, self._owners = cluster, namespaces, owners
        self._warned: set[str] = set()
        self._watched = GpuPods()
        self._idle: Sample | None = None  # the last one from the nodes, if no pod had or wanted a GPU
        self._answered = asyncio.Event()  # the watch was never tried, has listed its pods, or has failed
        self._answered.set()

    async def watch(self) -> None:
        """Watch the pods of all namespaces until cancelled. Without that permission, samples list them."""
        self._answered = self._watched.listed
        outage = Outage(self._cluster, lambda: None)
        try:
            await watch_forever(
                *(self._cluster, self._watched, "", outage),
                on_fresh=lambda: None,
                on_failed=self._answered.set,
            )
        finally:
            self._answered.set()
            self._watched = GpuPods()

    async def holders(self) -> dict[PodKey, GpuPod]:
        """Return pods with GPUs; without cluster-wide permission, only those in the sweeps' namespaces."""
        return _holders(await self.pods(await list_devices(self._cluster)))

    async def sample(self, at: datetime, step: int) -> Sample:
        pods, claiming = await self._pods()
        is_idle = not claiming and not any(pod.gpus or pod.wanted for pod in pods)
        idle = self._idle
        if is_idle and idle and idle.at <= at < idle.at + IDLE_INTERVAL:  # before it: the clock was set back
            return replace(idle, at=at, step=step)
        devices = await list_devices(self._cluster)
        sample = await self._read([*pods, *_claimed(claiming, devices)], devices, at, step)
        self._idle = sample if is_idle and not sample.nodes_unknown else None
        return sample

    async def _read(self, pods: Collection[GpuPod], devices: Devices, at: datetime, step: int) -> Sample:
        listed, metrics = await asyncio.gather(self._allowed("Node"), self._allowed("PodMetrics"))
        nodes = with_devices(listed, devices)
        holders = _holders(pods)
        readings, errors = await self._scrape([pod for pod in pods if pod.exports])
        labeled = {pod: by_labels(holder.labels) for pod, holder in holders.items()}
        owners = await self._owners.owners(at, holders, labeled)
        used = {(m["metadata"]["namespace"], m["metadata"]["name"]): gpus.read_usage(m) for m in metrics}
        created = [pod.created for pod in pods if pod.wanted]
        known, offered = _nodes(nodes, holders, readings)
        return Sample(
            at=at,
            step=step,
            pods=tuple(
                _pod_sample(holder, owners[pod], readings, used.get(pod), offered.get(pod, ""))
                for pod, holder in sorted(holders.items())
            ),
            nodes=known,
            wanted=sum(pod.wanted for pod in pods),
            waiting=len(created),
            longest=max([(at - since) / HOUR for since in created if since], default=0.0),
            xids=tuple(errors),
            nodes_unknown=not nodes,
        )

    async def pods(self, devices: Devices) -> Collection[GpuPod]:
        """Return unfinished pods with GPUs and exporters."""
        pods, claiming = await self._pods()
        return [*pods, *_claimed(claiming, devices)]

    async def _pods(self) -> tuple[Collection[GpuPod], Collection[Manifest]]:
        """Return unfinished pods with GPUs and exporters, as watched, else as listed; and those with claims.

        The watch lists all pods when it starts, which at 10,000 pods is 60 MB: others wait for that list.
        """
        await self._answered.wait()
        if self._watched.complete:
            return self._watched.pods, tuple(self._watched.claiming.values())
        listed = await self._listed()
        claiming = [pod for pod in listed if pod["spec"].get("resourceClaims")]
        plain = (pod for pod in listed if not pod["spec"].get("resourceClaims"))
        return tuple(filter(None, map(read_gpu_pod, plain))), claiming

    async def _listed(self) -> list[Manifest]:
        wanted: dict[str, Any] = {"fields": UNFINISHED_PODS, "only": gpus.concerns_gpus}
        if found := await self._allowed("Pod", **wanted):
            return found
        home, *others = self._namespaces()
        pods = await self._cluster.list("Pod", home, **wanted)
        return pods + [pod for each in others for pod in await self._allowed("Pod", each, **wanted)]

    async def _allowed(self, kind: str, namespace: str = "", **wanted: Any) -> list[Manifest]:
        """List objects of the cluster or a namespace; none if that is forbidden or the kind doesn't exist."""
        try:
            return await self._cluster.list(kind, namespace, **wanted)
        except ApiError as error:
            if not error.permanent and error.status != 503:  # of metrics-server, while it is down
                raise
            self._warn_once(f"{kind} in {namespace}" if namespace else kind, error)
            return []

    async def _scrape(self, exporters: list[GpuPod]) -> tuple[dict[str, list[Reading]], list[Xid]]:
        """Return readings by node, and errors. Parse one by one in a thread: they can be gigabytes."""
        slots = asyncio.Semaphore(SCRAPE_CONCURRENCY)

        async def scrape(pod: GpuPod) -> tuple[list[Reading], list[Xid]]:
            where = (pod.namespace, pod.name, dcgm.EXPORTER_PORT, dcgm.EXPORTER_PATH)
            try:
                async with slots:
                    async with asyncio.timeout(SCRAPE_TIMEOUT):
                        text = await self._cluster.proxy(*where)
                    return await asyncio.to_thread(
                        lambda: (dcgm.read_exporter(text), dcgm.read_errors(text, pod.node))
                    )
            except (ApiError, UnreachableError, TimeoutError) as error:
                self._warn_once(pod.name, error)
                return [], []

        readings, errors = defaultdict[str, list[Reading]](list), list[Xid]()
        for pod, (shares, last) in zip(exporters, await asyncio.gather(*map(scrape, exporters)), strict=True):
            readings[pod.node] += shares
            errors += last
        return readings, errors

    def _warn_once(self, what: str, error: Exception) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("GPU data is incomplete: can't read %s: %s", what, error or "no answer")


def _claimed(pods: Iterable[Manifest], devices: Devices) -> list[GpuPod]:
    return [*filter(None, map(read_gpu_pod, with_claims(pods, devices)))]


def _holders(pods: Iterable[GpuPod]) -> dict[PodKey, GpuPod]:
    return {(pod.namespace, pod.name): pod for pod in pods if pod.gpus}


def _use(holder: GpuPod, owner: Ownership, readings: Mapping[str, list[Reading]], offered: str) -> PodUse:
    mine = {  # two exporters can report one GPU; the highest is last
        reading.device: Gpu(
            device=reading.device,
            model=with_share(reading.model, offered),
            peak=reading.share,
            load=reading.load,
        )
        for reading in sorted(readings.get(holder.node, ()), key=lambda each: each.share)
        if (reading.namespace, reading.pod) == (holder.namespace, holder.name)
    }
    return PodUse(
        namespace=holder.namespace,
        pod=holder.name,
        node=holder.node,
        **vars(owner),
        started=holder.started,
        pod_started=holder.pod_started,
        allocated=holder.gpus,
        gpus=tuple(mine.values()),
    )


def _pod_sample(
    holder: GpuPod,
    owner: Ownership,
    readings: Mapping[str, list[Reading]],
    used: tuple[float, float] | None,
    offered: str,
) -> PodSample:
    """`offered`: the model of what the pod requests."""
    return PodSample(
        use=_use(holder, owner, readings, offered),
        model=offered,
        cpu_requested=holder.cpu_requested,
        cpu=used[0] if used else None,
        ram_requested=holder.ram_requested,
        ram=used[1] if used else None,
    )


def _nodes(
    nodes: Iterable[Manifest],
    holders: Mapping[PodKey, GpuPod],
    readings: Mapping[str, list[Reading]],
) -> tuple[tuple[NodeUse, ...], dict[PodKey, str]]:
    """Return each node's GPUs by resource, and by pod the model of what it requests."""
    held, found, models = Counter[tuple[str, str]](), [], {}
    for holder in holders.values():
        for resource, size in holder.sizes.items():
            held[holder.node, resource] += size
    for manifest in nodes:
        if (node := gpus.read_node(manifest)) is None:
            continue
        devices = {each.device: (each.model, each.index) for each in readings.get(node.node, ())}
        seen = NodeDevices.of(Counter(devices.values()))
        for resource, (physical, allocatable) in sorted(gpus.node_sizes(manifest).items()):
            model = models[node.node, resource] = seen.model(resource, physical)
            allocated = held[node.node, resource]
            one = vars(node) | {"physical": physical, "allocatable": allocatable}
            found.append(NodeUse(**one, model=model, allocated=allocated))
    offered = {
        pod: models.get((holder.node, min(holder.sizes, default="")), "") for pod, holder in holders.items()
    }
    return tuple(found), offered
