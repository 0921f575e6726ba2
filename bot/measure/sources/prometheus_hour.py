"""Combine Prometheus' answers about one hour into figures. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from bot.measure.gpus.models import HourCapacity, HourUse
from bot.measure.gpus.pod_owners import Ownership, PodKey
from bot.measure.sources.hour_queries import GpuHours
from bot.measure.sources.prometheus import Row
from bot.measure.sources.shared_use import assignable_hour
from k8s.nodes.gpu_pods import is_placeholder
from k8s.nodes.gpus import with_share

Place = tuple[str, str]  # a node, and a resource of it
Offered = Mapping[Place, tuple[int, str]]  # how many GPUs are there, and their model


@dataclass(frozen=True, kw_only=True)
class HourResults:
    """Query results of one hour."""

    allocated: list[Row]  # GPU-hours by pod
    gpus: GpuHours
    cpu_requested: Mapping[PodKey, float]  # cores
    cpu_mean: Mapping[PodKey, float]  # cores
    ram_requested: Mapping[PodKey, float]  # bytes
    ram_peak: Mapping[PodKey, float]  # bytes
    cluster: Mapping[str, float]  # totals by name
    offered: Offered
    owners: Mapping[PodKey, Ownership]


def assemble_hour(start: datetime, results: HourResults) -> tuple[tuple[HourUse, ...], HourCapacity]:
    """Combine the query results of the hour from `start` on. Pure."""
    uses = _hour_uses(start, results)
    total = results.cluster
    capacity = HourCapacity(
        hour=start,
        observed=sum(use.observed for use in uses),
        capacity=total["capacity"],
        allocated=sum(sums(results.allocated).values()),
        unhealthy=total["lost"] + total["closed"],
        coverage=min(total["coverage"], 1.0),
        closed=total["closed"],
        waited=total["waited"],
        waiting=round(total["waiting"]),
        wanted=round(total["wanted"]),
        longest=total["longest"],
    )
    return assignable_hour(uses), capacity


def _hour_uses(start: datetime, results: HourResults) -> tuple[HourUse, ...]:
    hours = results.gpus
    allocated, observed, used = sums(results.allocated), sums(hours.observed), sums(hours.used)
    idle, gpus = sums(hours.idle_late + hours.idle_early), Counter(row.pod for row in hours.observed)
    node = {row.pod: row.labels.get("node", "") for row in results.allocated}
    model = {row.pod: row.model for row in hours.observed}
    offers = {row.pod: results.offered.get(place_of(row), (0, ""))[1] for row in results.allocated}
    idle_all_hour = {row.device for row in hours.idle_late} & {row.device for row in hours.idle_early}
    unused = Counter(device[:2] for device in idle_all_hour)
    return tuple(
        HourUse(
            hour=start,
            namespace=pod[0],
            pod=pod[1],
            node=node[pod],
            owner=owner.owner,
            team=owner.team,
            sweep=owner.sweep,
            model=with_share(model[pod], offers[pod]) if model.get(pod) else offers[pod],
            allocated=allocated[pod],
            # A GPU can keep the label of a terminated pod until its kubelet removes it.
            observed=min(observed[pod], allocated[pod]),
            used=min(used[pod], allocated[pod]),
            idle=0.0 if is_placeholder(pod[1]) else min(idle[pod], allocated[pod]),
            gpus=gpus[pod],
            unused=0 if is_placeholder(pod[1]) else unused[pod],
            cpu_requested=results.cpu_requested.get(pod),
            cpu_mean=results.cpu_mean.get(pod),
            ram_requested=results.ram_requested.get(pod),
            ram_peak=results.ram_peak.get(pod),
        )
        for pod, owner in sorted(results.owners.items())
    )


def place_of(row: Row) -> Place:
    return row.labels.get("node", ""), row.labels.get("resource", "")


def sums(rows: Iterable[Row]) -> dict[PodKey, float]:
    """Add up the rows of each pod."""
    found: dict[PodKey, float] = defaultdict(float)
    for row in rows:
        found[row.pod] += row.value
    return found
