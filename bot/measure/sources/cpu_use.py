"""Measure the CPUs and memory of trials without GPUs by the kubelets' cAdvisor; each query covers all pods.

The mean is the difference of two samples of a counter: exact, and cheap at 10,000 pods. A container that
started in between has no first sample, so its use is unknown. A scrape without honorLabels renames the pod's
labels: `Row.pod` reads either.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from bot.measure.gpus.models import NoGpuDataError
from bot.measure.gpus.pod_owners import PodKey
from bot.measure.sources.prometheus import Prometheus, Row
from bot.measure.sources.promql import TRAINING, any_of

CPU, RAM = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
BURST = timedelta(minutes=10)  # over which a burst of computing is measured
MAX_NAMED = 500  # pods in a query; of more, it is for all


@dataclass(frozen=True, kw_only=True)
class CpuUse:
    """What one pod used in a window; None: unknown."""

    cores: float | None = None  # mean
    ram: float | None = None  # bytes, the peak


class CpuQueries:
    """`namespaces`: those of the pods. Methods raise NoGpuDataError."""

    def __init__(self, prometheus: Prometheus, now: Callable[[], datetime]) -> None:
        self._query, self._now = prometheus.query_each, now

    async def use(self, window: timedelta, namespaces: Collection[str]) -> dict[PodKey, CpuUse]:
        cores, ram = await asyncio.gather(
            self._by_pod(partial(mean_cores, _seconds(window)), namespaces),
            self._by_pod(partial(peak_ram, _seconds(window)), namespaces),
        )
        if not (cores or ram):
            raise NoGpuDataError(f"Prometheus has no {CPU} of pods in {', '.join(sorted(namespaces))}")
        return {pod: CpuUse(cores=cores.get(pod), ram=ram.get(pod)) for pod in cores.keys() | ram.keys()}

    async def bursts(self, window: timedelta, namespaces: Collection[str]) -> Mapping[PodKey, float]:
        """Return the cores of the 95th percentile of ten-minute means."""
        return await self._by_pod(partial(burst_cores, _seconds(window)), namespaces)

    async def peaks(
        self, window: timedelta, namespaces: Collection[str], pods: Collection[PodKey]
    ) -> Mapping[PodKey, float]:
        """Return the peak of the memory of these pods, in bytes; others can be among them."""
        names = {name for _, name in pods} if len(pods) <= MAX_NAMED else None
        return await self._by_pod(partial(peak_ram, _seconds(window), namespaces), names)

    async def _by_pod(self, query: Callable[..., str], names: Collection[str] | None) -> dict[PodKey, float]:
        return await asyncio.to_thread(_values, await self._query(query, names, self._now()))


def _seconds(window: timedelta) -> int:
    return round(window.total_seconds())


def _values(rows: Iterable[Row]) -> dict[PodKey, float]:
    return {row.pod: row.value for row in rows}


def mean_cores(window: int, namespaces: Collection[str]) -> str:
    def growth(which: str) -> str:
        return f"{CPU}{which} - {CPU}{which} offset {window}s >= 0"

    return f"{_of_pods(growth, namespaces)} / {window}"


def burst_cores(window: int, namespaces: Collection[str]) -> str:
    step = f"{_seconds(BURST)}s"
    rate = _of_pods(lambda which: f"rate({CPU}{which}[{step}])", namespaces)
    return f"quantile_over_time(0.95, ({rate})[{window}s:{step}])"


def peak_ram(window: int, namespaces: Collection[str], pods: Collection[str] | None = None) -> str:
    return _of_pods(lambda which: f"max_over_time({RAM}{which}[{window}s])", namespaces, pods)


def _of_pods(
    series: Callable[[str], str], namespaces: Collection[str], pods: Collection[str] | None = None
) -> str:
    """Sum the containers of each pod. `series`: of a selector in braces; some have a series for each CPU."""

    def summed(renamed: str) -> str:
        names = f"{renamed}namespace, {renamed}pod"
        named = "" if pods is None else f",{renamed}pod=~{any_of(pods)}"
        # A pod's cgroup has no container of its own: renamed, it has that of the scraped pod.
        own = ',exported_container!="",exported_container!="POD"' if renamed else ',exported_pod=""'
        which = f"{{{TRAINING},{renamed}namespace=~{any_of(namespaces)}{named}{own}}}"
        return f"sum by ({names}) (max by ({names}, {renamed}container, cpu) ({series(which)}))"

    return f"({summed('')} or {summed('exported_')})"
