"""Whether a trial has stopped to write to its log: GPUs that hang in a collective look as busy as any."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise

from bot.idle.detector import GpuAllocation, Kind
from k8s.client import KubernetesClient
from k8s.errors import ApiError, UnreachableError
from k8s.katib.spec import MAIN

PATIENCE = 5.0  # seconds for a kubelet
A_LINE = {"container": MAIN, "tailLines": 1, "limitBytes": 1024}
LINES = {"container": MAIN, "tailLines": 1000, "limitBytes": 2**18, "timestamps": "true"}
USUAL = 2  # times the longest pause so far: epochs differ


async def fell_silent(cluster: KubernetesClient, held: GpuAllocation, time: timedelta) -> Kind:
    """Return STUCK for a trial that wrote once and nothing of late, else FINE, or UNKNOWN.

    A program may be mute from the start, and one that writes a line per epoch pauses for whole epochs:
    its own longest pause counts where it is longer than `time`.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            if await _wrote(cluster, held, _since(time)):
                return Kind.FINE
            if not await _wrote(cluster, held, A_LINE):
                return Kind.FINE
            usual = USUAL * await _longest_pause(cluster, held)
            if usual > time and await _wrote(cluster, held, _since(usual)):
                return Kind.FINE
    except (ApiError, UnreachableError, TimeoutError):
        return Kind.UNKNOWN
    return Kind.STUCK


def _since(time: timedelta) -> dict[str, object]:
    """By the node's own clock."""
    return A_LINE | {"sinceSeconds": max(1, round(time.total_seconds()))}


async def _wrote(cluster: KubernetesClient, held: GpuAllocation, query: dict[str, object]) -> bool:
    for pod in held.pods:
        if await cluster.raw_log(held.namespace, pod, query):
            return True
    return False


async def _longest_pause(cluster: KubernetesClient, held: GpuAllocation) -> timedelta:
    """Between two lines of the trial, as far as its log goes back."""
    texts = [await cluster.raw_log(held.namespace, pod, LINES) for pod in held.pods]
    moments = sorted(parse_time for text in texts for parse_time in _moments(text.splitlines()))
    return max((later - earlier for earlier, later in pairwise(moments)), default=timedelta(0))


def _moments(lines: Iterable[str]) -> Iterable[datetime]:
    for line in lines:
        try:
            parse_time = datetime.fromisoformat(line.partition(" ")[0])
        except ValueError:  # a part of a line
            continue
        if parse_time.tzinfo:
            yield parse_time
