"""Sum up a day of GPU use for its digest (teams, people, the most idle and underused, costs, hours of the
chart), and compare it with the week before. Pure.

Used is time weighted by utilization, idle is full half-hours with no activity, unknown is allocated time
without metrics. The rest of the allocated time is pauses: data loading, checkpoints, starts, and stops. A
sweep or pod that uses less than a threshold of its measured time is underused: its pauses are reported, too.
GPUs that placeholders of reservations hold are in none of these.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime

from bot.core.plan import HOME_CLUSTER
from bot.measure.gpus.models import HOUR, MIN_COVERAGE, Hour, HourUse, UseColumns
from bot.measure.gpus.overrequest import Overrequest, find_overrequests
from bot.measure.gpus.sums import Sums, Totals, UsageSum, charged, grouped, summed
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.config.elastic import ElasticDeployment, is_elastic
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.platform.config.teams import Price
from k8s.nodes.gpu_pods import is_placeholder

MAX_MOST_IDLE = 5  # sweeps and pods
NOTABLE = 1.0  # GPU-hours; less isn't reported
MIN_UNDERUSED = 12.0  # measured GPU-hours, half a GPU's day; smaller jobs aren't worth a line


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str  # a team, or a Slack user id
    sums: Sums
    usual: float | None  # mean idle GPU-hours per day in the seven days before; None: no data
    underused: float = 0.0  # part of the sums: pauses of underused sweeps and pods


@dataclass(frozen=True, kw_only=True)
class MostIdle:
    """A sweep, or a pod outside sweeps, with idle or underused GPUs."""

    name: str  # sweep, or namespace/pod; cluster/namespace/pod outside the main cluster
    sweep: str
    owner: str
    team: str
    gpus: int  # peak
    sums: Sums
    partly: tuple[int, int, int] | None = None  # unused GPUs, GPUs per pod, pods of this kind
    underused: bool
    askable: bool  # a pod of the main cluster that Sweepbot didn't start, with a known owner


@dataclass(frozen=True, kw_only=True)
class Step:
    """One hour of the chart, in mean GPUs."""

    hour: datetime  # local
    used: float
    pauses: float
    idle: float
    unknown: float
    reserved: float  # by placeholders of reservations
    free: float
    unhealthy: float
    capacity: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    schedule: DigestSchedule
    day: date
    total: Sums
    underused: float = 0.0  # part of the total: pauses of underused sweeps and pods, in GPU-hours
    low: float = 0.0  # share of measured time; below it, sweeps and pods are underused
    environments: Sums = field(default_factory=Sums)  # part of the total: research environments
    elastic: Sums = field(default_factory=Sums)  # part of the total: replicas that follow free GPUs
    reserved: Mapping[str, Sums] = field(default_factory=dict)  # by team: held by unused reservations
    capacity: float
    free: float
    unhealthy: float
    waited: float
    waiting: int  # peak of pods without a node
    wanted: int  # peak of GPUs that they request
    longest: float  # hours that the oldest of them has waited
    coverage: float  # share of the day with measurements
    rows: tuple[Row, ...]  # by team, or by person of one team; the most idle and underused first
    people: tuple[Row, ...]
    most_idle: tuple[MostIdle, ...]
    steps: tuple[Step, ...]
    uses: UseColumns
    overrequests: tuple[Overrequest, ...]
    # The lowest and the highest price per GPU-hour by model: teams pay different ones, and prices change.
    prices: Mapping[str, tuple[float, float]]
    idle_prices: Mapping[str, tuple[float, float]]  # of idle GPU-hours
    clusters: Mapping[str, Sums | None] = field(default_factory=dict)  # if several; None: no measurements

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to report. Unhealthy GPUs and waiting pods belong to no team."""
        of_all = () if self.schedule.team else (self.unhealthy, self.waited)
        return max(self.total.idle, self.underused, self.total.unknown, self.unused, *of_all) < NOTABLE

    @property
    def unused(self) -> float:
        """Return the GPU-hours that unused reservations held. They aren't part of the total."""
        return sum(each.allocated for each in self.reserved.values())


def figures(
    schedule: DigestSchedule,
    day: date,
    hours: Iterable[Hour],
    week: Totals,
    prices: tuple[Price, ...],
    environments: str = "",
    elastic: tuple[ElasticDeployment, ...] = (),
    low: float = IdleThresholds().low_percent / 100,
) -> Figures:
    """Return the figures of `day`.

    `hours` are the day's, `week` sums the seven days before. With 100,000 uses it takes a third of a second.

    Args:
        environments: the namespace of research environments; "" if there is none.
        elastic: the Deployments whose replicas have their own line.
        low: share of its measured time below which a sweep or pod is underused; 0 reports none.
    """
    known = tuple(hours)
    uses = UseColumns.joined(hour.columns for hour in known)
    if schedule.team:
        uses = uses.where([team == schedule.team for team in uses.team])
        of_team = {key: each for key, each in week.groups.items() if key[1] == schedule.team}
        week = replace(week, groups=of_team)
    begin, end = schedule.window(day)
    working, reserved = _split(uses)
    sums = Totals.of(working).uses
    names, jobs = _by_job(working)
    underused = {name: job.pauses for name, job in jobs.items() if _is_underused(job, low)}
    # A sweep or pod has one owner and one team.
    last = {name: row for row, name in enumerate(names) if name in underused}
    owners, of_teams = (
        _by_key((column[last[name]] for name in underused), underused.values())
        for column in (working.owner, working.team)
    )
    people = _rows(sums, week, prices, lambda use: use.owner, owners)
    teams = _rows(sums, week, prices, lambda use: use.team, of_teams)
    capacities = [hour.capacity for hour in known]
    return Figures(
        schedule=schedule,
        day=day,
        total=summed(sums, prices),
        underused=sum(underused.values()),
        low=low,
        environments=summed([use for use in sums if environments and use.namespace == environments], prices),
        elastic=summed(_elastic(working, elastic), prices),
        reserved=grouped(Totals.of(reserved).uses, prices, lambda use: use.team),
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
        most_idle=tuple(
            replace(one, askable=one.askable and not _has_own_warnings(one.name, environments, elastic))
            for one in _most_idle(working, names, jobs, underused, prices)
        ),
        steps=tuple(_step(hour, schedule) for hour in known),
        uses=uses,
        overrequests=find_overrequests(uses),
        prices=_prices_of(sums, prices),
        idle_prices=_prices_of([use for use in sums if use.idle], prices),
    )


def _split(uses: UseColumns) -> tuple[UseColumns, UseColumns]:
    """Return the pods without placeholders of reservations, and the placeholders."""
    reserved = [is_placeholder(pod) for pod in uses.pod]
    if not any(reserved):
        return uses, UseColumns.of(())
    return uses.where([not each for each in reserved]), uses.where(reserved)


def _prices_of(uses: Collection[UsageSum], prices: tuple[Price, ...]) -> dict[str, tuple[float, float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for use, price in charged(uses, prices):
        if price is not None:
            found[use.model].append(price)
    return {model: (min(each), max(each)) for model, each in sorted(found.items())}


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
    underused: Mapping[str, float],
) -> tuple[Row, ...]:
    """`underused`: by key."""
    usual: dict[str, float] = defaultdict(float)
    for use in week.uses:
        usual[key(use)] += use.idle
    rows = [
        Row(
            name=name,
            sums=sums,
            usual=24 * usual[name] / week.coverage if week.coverage else None,
            underused=underused.get(name, 0.0),
        )
        for name, sums in grouped(uses, prices, key).items()
    ]
    worst = sorted(rows, key=lambda row: (-row.sums.idle - row.underused, -row.sums.allocated, row.name))
    return tuple(worst)


def _by_key(keys: Iterable[str], hours: Iterable[float]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for key, each in zip(keys, hours, strict=True):
        found[key] += each
    return found


def _by_job(uses: UseColumns) -> tuple[list[str], dict[str, Sums]]:
    """Return the sweep of each use, or its pod outside sweeps, and their sums without costs."""
    named = zip(uses.sweep, uses.cluster, uses.namespace, uses.pod, strict=True)
    names = [
        sweep or f"{'' if cluster == HOME_CLUSTER else f'{cluster}/'}{namespace}/{pod}"
        for sweep, cluster, namespace, pod in named
    ]
    # A column at a time takes half the time of a pod at a time.
    columns = (_by_key(names, each) for each in (uses.allocated, uses.used, uses.idle, uses.unknown))
    allocated, used, idle, unknown = columns
    return names, {
        name: Sums(allocated=hours, used=used[name], idle=idle[name], unknown=unknown[name])
        for name, hours in allocated.items()
    }


def _is_underused(job: Sums, low: float) -> bool:
    return job.measured > MIN_UNDERUSED and job.used < low * job.measured


def _most_idle(
    uses: UseColumns,
    names: list[str],
    jobs: Mapping[str, Sums],
    underused: Mapping[str, float],
    prices: tuple[Price, ...],
) -> tuple[MostIdle, ...]:
    """`names`: of each use; `underused`: pauses of such jobs."""
    lost = {name: job.idle + underused.get(name, 0.0) for name, job in jobs.items()}
    worst = sorted((name for name in lost if lost[name] >= NOTABLE), key=lambda name: (-lost[name], name))
    shown: dict[str, list[HourUse]] = {name: [] for name in worst[:MAX_MOST_IDLE]}
    for row, name in enumerate(names):
        if name in shown:
            shown[name].append(uses.row(row))
    return tuple(_idle_group(name, mine, prices, underused=name in underused) for name, mine in shown.items())


def _idle_group(name: str, uses: list[HourUse], prices: tuple[Price, ...], *, underused: bool) -> MostIdle:
    return MostIdle(
        name=name,
        sweep=uses[0].sweep,
        owner=uses[0].owner,
        team=uses[0].team,
        gpus=_at_a_time(uses),
        sums=summed(uses, prices),
        partly=_partly(uses),
        underused=underused,
        askable=not uses[0].sweep and bool(uses[0].owner) and uses[0].cluster == HOME_CLUSTER,
    )


def _has_own_warnings(name: str, environments: str, elastic: tuple[ElasticDeployment, ...]) -> bool:
    """Return whether the pod is an environment or a replica that follows free GPUs."""
    namespace, _, pod = name.partition("/")
    return (bool(environments) and namespace == environments) or is_elastic(elastic, namespace, pod)


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
    capacity = hour.capacity
    uses, reserved = _split(hour.columns)
    used, idle, unknown = sum(uses.used), sum(uses.idle), sum(uses.unknown)
    return Step(
        hour=capacity.hour.astimezone(schedule.zone),
        used=used,
        pauses=max(0.0, sum(uses.allocated) - used - idle - unknown),
        idle=idle,
        unknown=unknown,
        reserved=sum(reserved.allocated),
        free=capacity.free,
        unhealthy=capacity.unhealthy,
        capacity=capacity.capacity,
    )
