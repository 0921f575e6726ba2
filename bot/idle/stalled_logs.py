"""Detect trials that stopped logging: GPUs hung in a collective still look busy."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise

from bot.idle.detector import GpuAllocation, Kind
from k8s.client import KubernetesClient
from k8s.errors import ApiError, UnreachableError
from k8s.katib.spec import MAIN

TRIAL_LOGS_TIMEOUT = 5.0  # seconds for all log requests of one trial
LAST_LINE = {"container": MAIN, "tailLines": 1, "limitBytes": 1024}
LAST_LINES = {"container": MAIN, "tailLines": 1000, "limitBytes": 2**18, "timestamps": "true"}
PAUSE_FACTOR = 2  # times the longest pause so far: epochs differ in length


async def classify_log(cluster: KubernetesClient, allocation: GpuAllocation, threshold: timedelta) -> Kind:
    """Return STUCK for a trial that has logged before but not lately, else FINE, or UNKNOWN without logs.

    A program that never logs is FINE. One that logs once per epoch pauses for whole epochs, so twice its own
    longest pause counts where that is longer than `threshold`.
    """
    try:
        async with asyncio.timeout(TRIAL_LOGS_TIMEOUT):
            if await _has_lines(cluster, allocation, _since(threshold)):
                return Kind.FINE
            if not await _has_lines(cluster, allocation, LAST_LINE):
                return Kind.FINE
            usual = PAUSE_FACTOR * await _longest_pause(cluster, allocation)
            if usual > threshold and await _has_lines(cluster, allocation, _since(usual)):
                return Kind.FINE
    except (ApiError, UnreachableError, TimeoutError):
        return Kind.UNKNOWN
    return Kind.STUCK


def _since(time: timedelta) -> dict[str, object]:
    """Relative to the node's clock, so clock skew doesn't matter."""
    return LAST_LINE | {"sinceSeconds": max(1, round(time.total_seconds()))}


async def _has_lines(cluster: KubernetesClient, allocation: GpuAllocation, query: dict[str, object]) -> bool:
    for pod in allocation.pods:
        if await cluster.raw_log(allocation.namespace, pod, query):
            return True
    return False


async def _longest_pause(cluster: KubernetesClient, allocation: GpuAllocation) -> timedelta:
    """Return the longest time between two lines of any of the trial's pods, as far as the tail goes back."""
    texts = [await cluster.raw_log(allocation.namespace, pod, LAST_LINES) for pod in allocation.pods]
    times = sorted(time for text in texts for time in _timestamps(text.splitlines()))
    return max((later - earlier for earlier, later in pairwise(times)), default=timedelta(0))


def _timestamps(lines: Iterable[str]) -> Iterable[datetime]:
    for line in lines:
        try:
            time = datetime.fromisoformat(line.partition(" ")[0])
        except ValueError:  # a truncated line
            continue
        if time.tzinfo:
            yield time
