"""Read the current GPU use of each cluster beside the home cluster, as the workers sampled it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from redis.asyncio import Redis

from bot.config.clusters import remote
from bot.config.policy import Config
from bot.gpus.dcgm_source import SampleStore, ScrapeSource
from bot.gpus.models import HALF_HOUR, NodeUse, NoGpuDataError, Snapshot

Snapshots = Mapping[str, Snapshot | None]  # by cluster; None: no GPU data


async def snapshots_elsewhere(config: Config, redis: Redis, now: Callable[[], datetime]) -> Snapshots:
    """Return the latest snapshot of each cluster but the home cluster; its nodes are `cluster/node`."""

    async def measured(cluster: str) -> Snapshot | None:
        try:
            found = await ScrapeSource(SampleStore(redis, cluster), now).snapshot(HALF_HOUR)
        except NoGpuDataError:
            return None
        return _named(cluster, found)

    names = [each.name for each in remote(config.clusters)]
    return dict(zip(names, await asyncio.gather(*map(measured, names)), strict=True))


def nodes_of(snapshots: Snapshots) -> tuple[NodeUse, ...]:
    return tuple(node for each in snapshots.values() if each for node in each.nodes)


def _named(cluster: str, snapshot: Snapshot) -> Snapshot:
    return replace(
        snapshot,
        nodes=tuple(replace(each, node=f"{cluster}/{each.node}") for each in snapshot.nodes),
        pods=tuple(replace(each, node=f"{cluster}/{each.node}") for each in snapshot.pods),
    )
