"""Detect trials that stopped logging: GPUs hung in a collective still look busy."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from bot.watch.idle.detector import GpuAllocation, Kind
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, UnreachableError
from k8s.trial_kinds import JOB

TRIAL_LOGS_TIMEOUT = 5.0  # seconds for all log requests of one trial
READS_AT_ONCE = 16  # of one trial's logs
LAST_LINE: dict[str, object] = {"tailLines": 1, "limitBytes": 1024}
MAX_LINES = 1000  # of each pod, in which pauses are measured
LAST_LINES: dict[str, object] = {"tailLines": MAX_LINES, "limitBytes": 2**18, "timestamps": "true"}
PAUSE_FACTOR = 2  # times the longest pause so far: epochs differ in length
FIRST_LINES = timedelta(minutes=1)  # lines within it are one: what a program prints when it starts


async def classify_log(
    cluster: KubernetesClient,
    allocation: GpuAllocation,
    threshold: timedelta,
    *,
    container: str = JOB.container,
) -> Kind:
    """Return STUCK for a trial that has logged before but not lately, else FINE, or UNKNOWN without logs.

    A program that never logs is FINE. One that logs once per epoch pauses for whole epochs, so twice its own
    longest pause counts where that is longer than `threshold`, and twice the threshold in its first epoch.
    """
    logs = _TrialLogs(cluster, allocation, container)
    try:
        async with asyncio.timeout(TRIAL_LOGS_TIMEOUT):
            if await logs.have_lines(_since(threshold)):
                return Kind.FINE
            if not await logs.have_lines(LAST_LINE):
                return Kind.FINE
            pause = await logs.longest_pause()
            usual = PAUSE_FACTOR * (threshold if pause is None else pause)
            if usual > threshold and await logs.have_lines(_since(usual)):
                return Kind.FINE
    except (ApiError, UnreachableError, TimeoutError):
        return Kind.UNKNOWN
    return Kind.STUCK


def _since(time: timedelta) -> dict[str, object]:
    """Relative to the node's clock, so clock skew doesn't matter."""
    return LAST_LINE | {"sinceSeconds": max(1, round(time.total_seconds()))}


@dataclass(frozen=True)
class _TrialLogs:
    """The logs of the training on all nodes of one trial."""

    cluster: KubernetesClient
    allocation: GpuAllocation
    container: str

    async def have_lines(self, query: dict[str, object]) -> bool:
        """Read the first pod's log, and only if it has none of these lines, the others'."""
        first, *others = self.allocation.pods
        return bool(await self._read(first, query)) or any(await self._read_all(others, query))

    async def longest_pause(self) -> timedelta | None:
        """Return the longest time between two lines of any of the pods, as far as the tail goes back.

        None until a second line has come: the first epoch still runs.
        """
        return await asyncio.to_thread(_longest_pause, await self._read_all(self.allocation.pods, LAST_LINES))

    async def _read_all(self, pods: Iterable[str], query: dict[str, object]) -> list[str]:
        slots = asyncio.Semaphore(READS_AT_ONCE)

        async def read(pod: str) -> str:
            async with slots:
                return await self._read(pod, query)

        return await asyncio.gather(*map(read, pods))

    async def _read(self, pod: str, query: dict[str, object]) -> str:
        query = {"container": self.container, **query}
        return await self.cluster.raw_log(self.allocation.namespace, pod, query)


def _longest_pause(texts: Iterable[str]) -> timedelta | None:
    times = sorted(time for text in texts for time in _timestamps(text.splitlines()))
    if not times or (len(times) < MAX_LINES and times[-1] - times[0] < FIRST_LINES):
        return None
    return max((later - earlier for earlier, later in pairwise(times)), default=timedelta(0))


def _timestamps(lines: Iterable[str]) -> Iterable[datetime]:
    for line in lines:
        try:
            time = datetime.fromisoformat(line.partition(" ")[0])
        except ValueError:  # a truncated line
            continue
        if time.tzinfo:
            yield time
