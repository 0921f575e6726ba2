"""Sum up a day of GPU use, and compare it with the week before. Pure.

Used is time weighted by utilization, idle is full half-hours with no activity, unknown is allocated time
without metrics. The rest of the allocated time is pauses: data loading, checkpoints, starts, and stops.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from bot.config.digest_times import DigestSchedule
from bot.config.elastic import ElasticDeployment, is_elastic
from bot.config.teams import Price, price_of, prices_for
from bot.gpus.models import HOUR, MIN_COVERAGE, Hour, HourUse, UseColumns
from bot.gpus.overrequest import Overrequest, find_overrequests
from bot.gpus.sums import Sums, Totals, UsageSum, Use, grouped

MAX_MOST_IDLE = 5  # sweeps and pods
NOTABLE = 1.0  # GPU-hours; less isn't reported


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str  # a team, or a Slack user id
    sums: Sums
    usual: float | None  # mean idle GPU-hours per day in the seven days before; None: no data


@dataclass(frozen=True, kw_only=True)
class MostIdle:
    """A sweep, or a pod outside sweeps, with idle GPUs."""

    name: str  # sweep, or namespace/pod
    sweep: str
    owner: str
    team: str
    gpus: int  # peak
    sums: Sums
    partly: tuple[int, int, int] | None = None  # unused GPUs, GPUs per pod, pods of this kind


@dataclass(frozen=True, kw_only=True)
class Step:
    """One hour of the chart, in mean GPUs."""

    hour: datetime  # local
    used: float
    unused: float
    unknown: float
    free: float
    unhealthy: float
    capacity: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    schedule: DigestSchedule
    day: date
    total: Sums
    environments: Sums = field(default_factory=Sums)  # part of the total: research environments
    elastic: Sums = field(default_factory=Sums)  # part of the total: replicas that follow free GPUs
    capacity: float
    free: float
    unhealthy: float
    waited: float
    waiting: int  # peak of pods without a node
    wanted: int  # peak of GPUs that they request
    longest: float  # hours that the oldest of them has waited
    coverage: float  # share of the day with measurements
    rows: tuple[Row, ...]  # by team, or by person of one team; the most idle first
    people: tuple[Row, ...]
    most_idle: tuple[MostIdle, ...]
    steps: tuple[Step, ...]
    uses: UseColumns
    overrequests: tuple[Overrequest, ...]
    prices: Mapping[str, float]  # per GPU-hour, by model
    clusters: Mapping[str, Sums | None] = field(default_factory=dict)  # if several; None: no measurements

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to report. Unhealthy GPUs and waiting pods belong to no team."""
        of_all = () if self.schedule.team else (self.unhealthy, self.waited)
        return max(self.total.idle, self.total.unknown, *of_all) < NOTABLE


def figures(
    schedule: DigestSchedule,
    day: date,
    hours: Iterable[Hour],
    week: Totals,
    prices: tuple[Price, ...],
    environments: str = "",
    elastic: tuple[ElasticDeployment, ...] = (),
) -> Figures:
    """Return the figures of `day`.

    `hours` are the day's, `week` sums the seven days before. With 100,000 uses it takes a third of a second.

    Args:
        environments: the namespace of research environments; "" if there is none.
        elastic: the Deployments whose replicas have their own line.
    """
    known = tuple(hours)
    uses = UseColumns.joined(hour.columns for hour in known)
    if schedule.team:
        uses = uses.where([team == schedule.team for team in uses.team])
    begin, end = schedule.window(day)
    sums = Totals.of(uses).uses
    people = _rows(sums, week, prices, lambda use: use.owner)
    teams = _rows(sums, week, prices, lambda use: use.team)
    capacities = [hour.capacity for hour in known]
    return Figures(
        schedule=schedule,
        day=day,
        total=_sum(sums, prices),
        environments=_sum([use for use in sums if environments and use.namespace == environments], prices),
        elastic=_sum(_elastic(uses, elastic), prices),
        capacity=sum(each.capacity for each in capacities),
        free=sum(each.free for each in capacities),
        unhealthy=sum(each.unhealthy for each in capacities),
        waited=sum(each.waited for each in capacities),
        waiting=max((each.waiting for each in capacities), default=0),
        wanted=max((each.wanted for each in capacities), default=0),
        longest=max((each.longest for each in capacities), default=0.0),
        coverage=sum(each.coverage for each in capacities) / round((end - begin) / HOUR),
        rows=people if schedule.team else teams,
        people=people,
        most_idle=_most_idle(uses, prices),
        steps=tuple(_step(hour, schedule) for hour in known),
        uses=uses,
        overrequests=find_overrequests(uses),
        prices=_prices_of(prices_for(prices, schedule.team), {use.model for use in sums}),
    )


def _prices_of(prices: tuple[Price, ...], models: Iterable[str]) -> dict[str, float]:
    known = {model: price_of(prices, model) for model in sorted(models)}
    return {model: price for model, price in known.items() if price is not None}


def _sum(uses: Collection[Use], prices: tuple[Price, ...]) -> Sums:
    return grouped(uses, prices, lambda _: "").get("", Sums())


def _elastic(uses: UseColumns, elastic: tuple[ElasticDeployment, ...]) -> Collection[HourUse]:
    if not elastic:
        return ()
    names = zip(uses.namespace, uses.pod, strict=True)
    return tuple(uses.where([is_elastic(elastic, *each) for each in names]).rows())


def _rows(
    uses: Collection[UsageSum],
    week: Totals,
    prices: tuple[Price, ...],
    key: Callable[[UsageSum], str],
) -> tuple[Row, ...]:
    usual: dict[str, float] = defaultdict(float)
    for use in week.uses:
        usual[key(use)] += use.idle
    rows = [
        Row(name=name, sums=sums, usual=24 * usual[name] / week.coverage if week.coverage else None)
        for name, sums in grouped(uses, prices, key).items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.sums.idle, -row.sums.allocated, row.name)))


def _most_idle(uses: UseColumns, prices: tuple[Price, ...]) -> tuple[MostIdle, ...]:
    idle: dict[str, float] = defaultdict(float)
    every = _idle_names(uses)
    for name, hours in zip(every, uses.idle, strict=True):
        idle[name] += hours
    names = sorted((name for name in idle if idle[name] >= NOTABLE), key=lambda name: (-idle[name], name))
    shown: dict[str, list[HourUse]] = {name: [] for name in names[:MAX_MOST_IDLE]}
    selected = uses.where([name in shown for name in every])
    for name, use in zip(_idle_names(selected), selected.rows(), strict=True):
        shown[name].append(use)
    return tuple(_idle_group(name, mine, prices) for name, mine in shown.items())


def _idle_names(uses: UseColumns) -> list[str]:
    named = zip(uses.sweep, uses.namespace, uses.pod, strict=True)
    return [sweep or f"{namespace}/{pod}" for sweep, namespace, pod in named]


def _idle_group(name: str, uses: list[HourUse], prices: tuple[Price, ...]) -> MostIdle:
    return MostIdle(
        name=name,
        sweep=uses[0].sweep,
        owner=uses[0].owner,
        team=uses[0].team,
        gpus=_at_a_time(uses),
        sums=_sum(uses, prices),
        partly=_partly(uses),
    )


def _at_a_time(uses: Iterable[HourUse]) -> int:
    allocated: dict[datetime, float] = defaultdict(float)
    for use in uses:
        allocated[use.hour] += use.allocated
    return max(1, round(max(allocated.values())))


def _partly(uses: Iterable[HourUse]) -> tuple[int, int, int] | None:
    """Return the most frequent kind of pod with some GPUs unused in every hour.

    Hours in which a pod was not fully measured don't count.
    """
    pods: dict[tuple[str, str], list[HourUse]] = defaultdict(list)
    for use in uses:
        if use.gpus and use.observed >= MIN_COVERAGE * use.gpus:
            pods[use.namespace, use.pod].append(use)
    found = [(min(use.unused for use in mine), max(use.gpus for use in mine)) for mine in pods.values()]
    partly = Counter((unused, of) for unused, of in found if 0 < unused < of)
    return next(((*kind, number) for kind, number in partly.most_common(1)), None)


def _step(hour: Hour, schedule: DigestSchedule) -> Step:
    """Return one hour of the whole cluster: free and unhealthy GPUs belong to no team."""
    capacity, uses = hour.capacity, hour.columns
    used, unknown = sum(uses.used), sum(uses.unknown)
    return Step(
        hour=capacity.hour.astimezone(schedule.zone),
        used=used,
        unused=max(0.0, sum(uses.allocated) - used - unknown),
        unknown=unknown,
        free=capacity.free,
        unhealthy=capacity.unhealthy,
        capacity=capacity.capacity,
    )
