"""Answer `/gpus` views of pods and nodes for all clusters: one answer, then a line for each cluster."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from redis.asyncio import Redis

from bot.clients import Clients
from bot.config.clusters import remote
from bot.core.plan import HOME_CLUSTER
from bot.core.wording import counted
from bot.gpus.command import answer, summary
from bot.gpus.dcgm_source import SampleStore, ScrapeSource
from bot.gpus.models import HALF_HOUR, NoGpuDataError, Snapshot
from bot.slack.mrkdwn import code

Snapshots = Mapping[str, Snapshot | None]  # by cluster; None: no GPU data


async def snapshots_elsewhere(clients: Clients, redis: Redis) -> Snapshots:
    """Return the latest snapshot of each cluster but the home cluster."""

    async def measured(cluster: str) -> Snapshot | None:
        try:
            return await ScrapeSource(SampleStore(redis, cluster), clients.now).snapshot(HALF_HOUR)
        except NoGpuDataError:
            return None

    names = [each.name for each in remote(clients.config.clusters)]
    return dict(zip(names, await asyncio.gather(*map(measured, names)), strict=True))


def answer_of_all(view: str, home: Snapshot, others: Snapshots, user: str, now: datetime) -> str:
    """Return the answer about all clusters together, in which nodes elsewhere are `cluster/node`."""
    parts = [home, *(_named(name, each) for name, each in others.items() if each)]
    nodes = tuple(node for each in parts for node in each.nodes)
    pods = tuple(pod for each in parts for pod in each.pods)
    text = answer(view, replace(home, nodes=nodes, pods=pods), user, now)
    lines = _lines(view, {HOME_CLUSTER: home, **others}, user)
    return "\n".join([text, "*By cluster*", *lines])


def _named(cluster: str, snapshot: Snapshot) -> Snapshot:
    return replace(
        snapshot,
        nodes=tuple(replace(each, node=f"{cluster}/{each.node}") for each in snapshot.nodes),
        pods=tuple(replace(each, node=f"{cluster}/{each.node}") for each in snapshot.pods),
    )


def _lines(view: str, snapshots: Snapshots, user: str) -> Iterator[str]:
    for name, found in snapshots.items():
        if found is None:
            yield f"• {code(name)}: no GPU data"
            continue
        shown = [pod for pod in found.pods if view != "mine" or pod.owner == user]
        free, total = sum(node.free for node in found.nodes), sum(node.allocatable for node in found.nodes)
        of_all = "" if view == "mine" else f"{free} of {counted(total, 'GPU')} free, "
        yield f"• {code(name)}: {of_all}{summary(shown, found.at)}"
