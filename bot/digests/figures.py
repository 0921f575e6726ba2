"""What a day's GPUs came to: sums of its hours, compared with the week before. Pure.

Allocated is what pods held, used each moment by the share a GPU was busy, idle whole half hours without any
work, unknown what nobody measured. What is left between them are pauses: loading, checkpoints, starts, ends.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from bot.config.digest_times import DigestSchedule
from bot.config.teams import Price, price_of
from bot.gpus.models import ENOUGH, HOUR, Hour, HourUse
from bot.gpus.overrequest import Overasked, overasked
from bot.gpus.sums import Sums, grouped

WEEK = timedelta(days=7)
WORST = 5
WORTH = 1.0  # idle GPU-hours below which nobody is named


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str  # of a team; or a person's id
    sums: Sums
    usual: float | None  # idle GPU-hours of a day as in the seven before; None: nothing is known of them


@dataclass(frozen=True, kw_only=True)
class MostIdle:
    """A sweep, or a pod outside of sweeps, that held GPUs and did nothing with them."""

    name: str  # sweep, or namespace/pod
    sweep: str
    owner: str
    team: str
    gpus: int  # at most, at a time
    sums: Sums
    partly: tuple[int, int, int] | None = None  # so many GPUs of so many were never at work, in so many pods


@dataclass(frozen=True, kw_only=True)
class Step:
    """An hour of the chart: GPUs on average."""

    hour: datetime  # local
    used: float
    unused: float
    unknown: float
    free: float
    unhealthy: float
    capacity: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    about: DigestSchedule
    day: date
    total: Sums
    capacity: float
    free: float
    unhealthy: float
    waited: float
    waiting: int  # pods, at most at a time
    wanted: int  # GPUs for them
    longest: float  # hours that one of them has waited
    coverage: float  # the share of the day that anybody looked at
    rows: tuple[Row, ...]  # teams, or the people of one; the most idle first
    people: tuple[Row, ...]
    most_idle: tuple[MostIdle, ...]
    steps: tuple[Step, ...]
    uses: tuple[HourUse, ...]
    overasked: tuple[Overasked, ...]
    prices: Mapping[str, float]  # of an hour of one GPU, by the models that were held

    @property
    def quiet(self) -> bool:
        """Nothing to report. What is broken, or waits for others' GPUs, is no team's."""
        of_all = () if self.about.team else (self.unhealthy, self.waited)
        return max(self.total.idle, self.total.unknown, *of_all) < WORTH


def figures(
    about: DigestSchedule, day: date, hours: Iterable[Hour], week: Iterable[Hour], prices: tuple[Price, ...]
) -> Figures:
    """`hours`: those of the day; `week`: of the seven days before."""
    known, before = tuple(hours), tuple(week)
    uses = tuple(use for hour in known for use in hour.uses if about.team in ("", use.team))
    past = [use for hour in before for use in hour.uses]
    begin, end = about.window(day)
    covered = sum(hour.capacity.coverage for hour in before)
    people = _rows(uses, past, covered, prices, lambda use: use.owner)
    teams = _rows(uses, past, covered, prices, lambda use: use.team)
    given = [hour.capacity for hour in known]
    return Figures(
        about=about,
        day=day,
        total=_sum(uses, prices),
        capacity=sum(each.capacity for each in given),
        free=sum(each.free for each in given),
        unhealthy=sum(each.unhealthy for each in given),
        waited=sum(each.waited for each in given),
        waiting=max((each.waiting for each in given), default=0),
        wanted=max((each.wanted for each in given), default=0),
        longest=max((each.longest for each in given), default=0.0),
        coverage=sum(each.coverage for each in given) / max(1, round((end - begin) / HOUR)),
        rows=people if about.team else teams,
        people=people,
        most_idle=_offenders(uses, prices),
        steps=tuple(_step(hour, about) for hour in known),
        uses=uses,
        overasked=overasked(uses, past),
        prices=_known(prices, {use.model for use in uses}),
    )


def _known(prices: tuple[Price, ...], models: Iterable[str]) -> dict[str, float]:
    known = {model: price_of(prices, model) for model in sorted(models)}
    return {model: price for model, price in known.items() if price is not None}


def _sum(uses: Iterable[HourUse], prices: tuple[Price, ...]) -> Sums:
    sums = Sums()
    for use in uses:
        sums.add(use, price_of(prices, use.model))
    return sums


def _rows(
    uses: Iterable[HourUse],
    past: Iterable[HourUse],
    hours: float,
    prices: tuple[Price, ...],
    key: Callable[[HourUse], str],
) -> tuple[Row, ...]:
    usual: dict[str, float] = defaultdict(float)
    for use in past:
        usual[key(use)] += use.idle
    rows = [
        Row(name=name, sums=sums, usual=24 * usual[name] / hours if hours else None)
        for name, sums in grouped(uses, prices, key).items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.sums.idle, -row.sums.allocated, row.name)))


def _offenders(uses: Iterable[HourUse], prices: tuple[Price, ...]) -> tuple[MostIdle, ...]:
    groups: dict[str, list[HourUse]] = defaultdict(list)
    for use in uses:
        groups[use.sweep or f"{use.namespace}/{use.pod}"].append(use)
    found = [
        MostIdle(
            name=name,
            sweep=mine[0].sweep,
            owner=mine[0].owner,
            team=mine[0].team,
            gpus=_at_a_time(mine),
            sums=_sum(mine, prices),
            partly=_partly(mine),
        )
        for name, mine in groups.items()
        if sum(use.idle for use in mine) >= WORTH
    ]
    return tuple(sorted(found, key=lambda one: (-one.sums.idle, one.name))[:WORST])


def _at_a_time(uses: Iterable[HourUse]) -> int:
    held: dict[datetime, float] = defaultdict(float)
    for use in uses:
        held[use.hour] += use.allocated
    return max(1, round(max(held.values())))


def _partly(uses: Iterable[HourUse]) -> tuple[int, int, int] | None:
    """Of the pods some but not all of whose GPUs did nothing in every hour, those that are alike.

    An hour that a pod was not all there, or not measured, proves nothing.
    """
    pods: dict[tuple[str, str], list[HourUse]] = defaultdict(list)
    for use in uses:
        if use.gpus and use.observed >= ENOUGH * use.gpus:
            pods[use.namespace, use.pod].append(use)
    found = [(min(use.unused for use in mine), max(use.gpus for use in mine)) for mine in pods.values()]
    partly = Counter((unused, of) for unused, of in found if 0 < unused < of)
    return next(((*alike, number) for alike, number in partly.most_common(1)), None)


def _step(hour: Hour, about: DigestSchedule) -> Step:
    """All of the cluster: free and broken GPUs are no team's."""
    given, uses = hour.capacity, hour.uses
    used, unknown = sum(use.used for use in uses), sum(use.unknown for use in uses)
    return Step(
        hour=given.hour.astimezone(about.zone),
        used=used,
        unused=max(0.0, sum(use.allocated for use in uses) - used - unknown),
        unknown=unknown,
        free=given.free,
        unhealthy=given.unhealthy,
        capacity=given.capacity,
    )
