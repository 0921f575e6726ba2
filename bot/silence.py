"""Whether a trial has stopped to write to its log: GPUs that hang in a collective look as busy as any."""

import asyncio
from datetime import timedelta

from bot.idle import Holding, Kind
from k8s.cluster import ApiError, Cluster, Unreachable
from k8s.katib import MAIN

PATIENCE = 5.0  # seconds for a kubelet
A_LINE = {"container": MAIN, "tailLines": 1, "limitBytes": 1024}


async def fell_silent(cluster: Cluster, held: Holding, time: timedelta) -> Kind:
    """STUCK: it wrote something once, and nothing of late. A program may be mute from the start."""
    since = A_LINE | {"sinceSeconds": max(1, round(time.total_seconds()))}
    try:
        async with asyncio.timeout(PATIENCE):
            for pod in held.pods:
                if await cluster.raw_log(held.namespace, pod, since):
                    return Kind.FINE
            wrote = [await cluster.raw_log(held.namespace, pod, A_LINE) for pod in held.pods]
    except (ApiError, Unreachable, TimeoutError):
        return Kind.UNKNOWN
    return Kind.STUCK if any(wrote) else Kind.FINE
