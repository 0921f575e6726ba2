"""Combine Prometheus' answers about one hour into figures. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from bot.gpus.models import HourCapacity, HourUse
from bot.gpus.pod_owners import Ownership, Place
from bot.gpus.prometheus import Row


@dataclass(frozen=True, kw_only=True)
class HourResults:
    """Query results of one hour; rows are GPU-hours, by pod or by GPU."""

    allocated: list[Row]  # by pod
    observed: list[Row]
    used: list[Row]
    idle_early: list[Row]  # idle for all of the first half hour
    idle_late: list[Row]  # idle for all of the second half hour
    cpu_requested: Mapping[Place, float]  # cores
    cpu_mean: Mapping[Place, float]  # cores
    ram_requested: Mapping[Place, float]  # bytes
    ram_peak: Mapping[Place, float]  # bytes
    cluster: Mapping[str, float]  # totals by the names of CLUSTER_QUERIES
    models: Mapping[str, str]  # node -> GPU model
    owners: Mapping[Place, Ownership]


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
    return uses, capacity


def _hour_uses(start: datetime, results: HourResults) -> tuple[HourUse, ...]:
    allocated, observed, used = sums(results.allocated), sums(results.observed), sums(results.used)
    idle, gpus = sums(results.idle_late + results.idle_early), Counter(row.place for row in results.observed)
    node = {row.place: row.labels.get("node", "") for row in results.allocated}
    model = {row.place: row.model for row in results.observed}
    idle_all_hour = {row.device for row in results.idle_late} & {row.device for row in results.idle_early}
    unused = Counter(device[:2] for device in idle_all_hour)
    return tuple(
        HourUse(
            hour=start,
            namespace=place[0],
            pod=place[1],
            node=node[place],
            owner=owner.owner,
            team=owner.team,
            sweep=owner.sweep,
            model=model.get(place) or results.models.get(node[place], ""),
            allocated=allocated[place],
            # A GPU can keep the label of a terminated pod until its kubelet removes it.
            observed=min(observed[place], allocated[place]),
            used=min(used[place], allocated[place]),
            idle=min(idle[place], allocated[place]),
            gpus=gpus[place],
            unused=unused[place],
            cpu_requested=results.cpu_requested.get(place),
            cpu_mean=results.cpu_mean.get(place),
            ram_requested=results.ram_requested.get(place),
            ram_peak=results.ram_peak.get(place),
        )
        for place, owner in sorted(results.owners.items())
    )


def sums(rows: Iterable[Row]) -> dict[Place, float]:
    """Add up the rows of each pod."""
    found: dict[Place, float] = defaultdict(float)
    for row in rows:
        found[row.place] += row.value
    return found
