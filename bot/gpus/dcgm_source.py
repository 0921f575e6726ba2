"""Measure GPU use without Prometheus: scrape dcgm-exporter through the API server, and metrics-server.

    usage:<cluster>:cluster-samples   list: a compressed Sample each, the latest first; expires after a day

One worker takes samples (`bot.gpus.collector`); every process reads them. There is no other history.
"""

import asyncio
import logging
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from bot.gpus import sampling
from bot.gpus.models import HOUR, Gpu, HourCapacity, HourUse, NodeUse, NoGpuDataError, PodUse, Snapshot, Xid
from bot.gpus.pod_owners import Ownership, OwnerStore, PodKey, by_labels
from bot.gpus.sampling import PodSample, Sample
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, UnreachableError
from k8s.api.outage import Outage
from k8s.api.watch import watch_forever
from k8s.nodes import dcgm, gpus
from k8s.nodes.dcgm import LastError, Reading
from k8s.nodes.gpu_pods import UNFINISHED_PODS, GpuPod, GpuPods, read_gpu_pod
from k8s.nodes.gpus import GpuNode, Holder
from k8s.objects import Manifest

log = logging.getLogger(__name__)

RETENTION = timedelta(hours=3)  # the longest window in use, and time to write an hour
SAMPLE_MAX_AGE = timedelta(minutes=5)  # without a sample, there is no GPU data
SCRAPE_CONCURRENCY = 16  # exporters
SCRAPE_TIMEOUT = 5.0  # seconds per exporter


class SampleStore:
    def __init__(self, redis: Redis, cluster: str = "main") -> None:
        self._redis, self._key = redis, f"usage:{cluster}:cluster-samples"

    async def save(self, sample: Sample) -> None:
        merged = sampling.with_history(sample, await self._latest())
        async with self._redis.pipeline(transaction=True) as steps:
            steps.lpush(self._key, zlib.compress(sampling.dump(merged)))
            steps.expire(self._key, timedelta(days=1))
            await steps.execute()
        while (oldest := await self._texts(-1, -1)) and _taken(oldest[0]) < sample.at - RETENTION:
            await self._redis.rpop(self._key)

    async def since(self, start: datetime) -> list[Sample]:
        """Return samples after `start`, the oldest first; one per time, even if two workers sampled."""
        latest = await self._latest()
        if latest is None:
            return []
        number = max(1, round((latest.at - start).total_seconds() / latest.step) + 2)
        texts = await self._texts(0, number - 1)
        # The interval is a setting, and could have been shorter before.
        while _taken(texts[-1]) > start and (more := await self._texts(len(texts), len(texts) + number - 1)):
            texts += more
        found = {sample.at: sample for sample in await asyncio.to_thread(_loaded, texts)}  # can take seconds
        return [found[at] for at in sorted(found) if at > start]

    async def _latest(self) -> Sample | None:
        return next(iter(await asyncio.to_thread(_loaded, await self._texts(0, 0))), None)

    async def _texts(self, first: int, last: int) -> list[bytes]:
        found: list[Any] = await self._redis.lrange(self._key, first, last)
        return found


def _taken(text: bytes) -> datetime:
    """Return the sample's time; it is the first field, so the rest needn't be decompressed."""
    return datetime.fromisoformat(zlib.decompressobj().decompress(text, 64).decode().split('"', 4)[3])


def _loaded(texts: Iterable[bytes]) -> list[Sample]:
    return [sampling.load(zlib.decompress(text)) for text in texts]


class ScrapeSource:
    def __init__(self, samples: SampleStore, now: Callable[[], datetime]) -> None:
        self._samples, self._now = samples, now

    async def snapshot(self, window: timedelta) -> Snapshot:
        samples = await self._fresh(window)
        pods = await asyncio.to_thread(sampling.pods, samples, window)
        return Snapshot(at=samples[-1].at, nodes=samples[-1].nodes, pods=pods)

    async def pods(self, window: timedelta) -> tuple[PodUse, ...]:
        return await asyncio.to_thread(sampling.pods, await self._fresh(window), window)

    async def nodes(self) -> tuple[NodeUse, ...]:
        return (await self._fresh(timedelta(0)))[-1].nodes

    async def xids(self) -> tuple[Xid, ...]:
        return (await self._fresh(timedelta(0)))[-1].xids

    async def hour(self, start: datetime) -> tuple[tuple[HourUse, ...], HourCapacity]:
        return await asyncio.to_thread(sampling.hour, await self._samples.since(start), start)

    async def _fresh(self, window: timedelta) -> Sequence[Sample]:
        found = await self._samples.since(self._now() - SAMPLE_MAX_AGE - window)
        if not found or found[-1].at <= self._now() - SAMPLE_MAX_AGE:
            raise NoGpuDataError(
                "no GPU sample for 5 min; check that a worker is running and has the deploy/usage permissions"
            )
        return found


class Sampler:
    """Takes samples of the cluster. Missing permissions are logged once; that data is unknown, not idle."""

    def __init__(
        self, cluster: KubernetesClient, namespaces: Callable[[], Sequence[str]], owners: OwnerStore
    ) -> None:
        """`namespaces`: those of the sweeps, the default one first."""
        self._cluster, self._namespaces, self._owners = cluster, namespaces, owners
        self._warned: set[str] = set()
        self._watched = GpuPods()

    async def watch(self) -> None:
        """Watch the pods of all namespaces until cancelled. Without that permission, samples list them."""
        try:
            await watch_forever(
                self._cluster, self._watched, "", Outage(self._cluster, lambda: None), on_fresh=lambda: None
            )
        finally:
            self._watched = GpuPods()

    async def holders(self) -> dict[PodKey, Holder]:
        """Return pods with GPUs; without cluster-wide permission, only those in the sweeps' namespaces."""
        return _holders(await self.pods())

    async def sample(self, at: datetime, step: int) -> Sample:
        pods, nodes, metrics = await asyncio.gather(
            self.pods(), self._allowed("Node"), self._allowed("PodMetrics")
        )
        holders = _holders(pods)
        readings, errors = await self._scrape([pod for pod in pods if pod.exports])
        labeled = {pod: by_labels(holder.labels) for pod, holder in holders.items()}
        owners = await self._owners.owners(at, holders, labeled)
        used = {(m["metadata"]["namespace"], m["metadata"]["name"]): gpus.read_usage(m) for m in metrics}
        created = [pod.created for pod in pods if pod.wanted]
        return Sample(
            at=at,
            step=step,
            pods=tuple(
                _pod_sample(_use(holder, owners[pod], readings), holder, used.get(pod))
                for pod, holder in sorted(holders.items())
            ),
            nodes=tuple(_node(n, holders.values(), readings) for n in map(gpus.read_node, nodes) if n),
            wanted=sum(pod.wanted for pod in pods),
            waiting=len(created),
            longest=max([(at - since) / HOUR for since in created if since], default=0.0),
            xids=tuple(Xid(node=node, **vars(error)) for node in errors for error in errors[node]),
        )

    async def pods(self) -> Collection[GpuPod]:
        """Return unfinished pods with GPUs and exporters: as watched, else as listed."""
        if self._watched.complete:
            return self._watched.pods
        return [found for pod in await self._listed() if (found := read_gpu_pod(pod))]

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

    async def _scrape(
        self, exporters: list[GpuPod]
    ) -> tuple[dict[str, list[Reading]], dict[str, list[LastError]]]:
        """Return readings and errors by node. Parse one by one in a thread: they can be gigabytes."""
        slots = asyncio.Semaphore(SCRAPE_CONCURRENCY)

        async def scrape(pod: GpuPod) -> tuple[list[Reading], list[LastError]]:
            where = (pod.namespace, pod.name, dcgm.EXPORTER_PORT, dcgm.EXPORTER_PATH)
            try:
                async with slots:
                    async with asyncio.timeout(SCRAPE_TIMEOUT):
                        text = await self._cluster.proxy(*where)
                    return await asyncio.to_thread(lambda: (dcgm.read_exporter(text), dcgm.read_errors(text)))
            except (ApiError, UnreachableError, TimeoutError) as error:
                self._warn_once(pod.name, error)
                return [], []

        readings: dict[str, list[Reading]] = defaultdict(list)
        errors: dict[str, list[LastError]] = defaultdict(list)
        for pod, (shares, last) in zip(exporters, await asyncio.gather(*map(scrape, exporters)), strict=True):
            readings[pod.node] += shares
            errors[pod.node] += last
        return readings, errors

    def _warn_once(self, what: str, error: Exception) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("GPU data is incomplete: can't read %s: %s", what, error or "no answer")


def _holders(pods: Iterable[GpuPod]) -> dict[PodKey, Holder]:
    return {(pod.namespace, pod.name): pod.holder for pod in pods if pod.holder}


def _use(holder: Holder, owner: Ownership, readings: Mapping[str, list[Reading]]) -> PodUse:
    mine = {  # two exporters can report one GPU; the highest is last
        reading.device: Gpu(device=reading.device, model=reading.model, peak=reading.share)
        for reading in sorted(readings.get(holder.node, ()), key=lambda each: each.share)
        if (reading.namespace, reading.pod) == (holder.namespace, holder.pod)
    }
    return PodUse(
        namespace=holder.namespace,
        pod=holder.pod,
        node=holder.node,
        **vars(owner),
        started=holder.started,
        allocated=holder.gpus,
        gpus=tuple(mine.values()),
    )


def _pod_sample(use: PodUse, holder: Holder, used: tuple[float, float] | None) -> PodSample:
    return PodSample(
        use=use,
        cpu_requested=holder.cpu_requested,
        cpu=used[0] if used else None,
        ram_requested=holder.ram_requested,
        ram=used[1] if used else None,
    )


def _node(node: GpuNode, holders: Iterable[Holder], readings: Mapping[str, list[Reading]]) -> NodeUse:
    held = sum(holder.gpus for holder in holders if holder.node == node.node)
    model = next((reading.model for reading in readings.get(node.node, ())), "")
    return NodeUse(**vars(node), model=model, allocated=held)
