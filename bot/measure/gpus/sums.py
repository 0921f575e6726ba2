"""Sums of GPU-hours and their cost, at the prices stored with their hours or the current ones, and the models
without a price.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from bot.measure.gpus.models import UseColumns
from bot.platform.config.teams import Price, price_of, prices_for


class Use(Protocol):
    """GPU-hours on GPUs of one model."""

    @property
    def team(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def price(self) -> float | None: ...
    @property
    def allocated(self) -> float: ...
    @property
    def used(self) -> float: ...
    @property
    def idle(self) -> float: ...
    @property
    def unknown(self) -> float: ...


# In place of a sweep; no sweep has such a name.
ELASTIC = "Elastic"  # replicas of elastic Deployments
RESERVED = "Reserved"  # placeholders of reservations
UseT = TypeVar("UseT", bound=Use)


class UsageSum(NamedTuple):
    """GPU-hours of all pods of a sweep, or of a person's pods outside sweeps, on GPUs of one model.

    `sweep` is ELASTIC for replicas of elastic Deployments, RESERVED for placeholders of reservations.
    """

    namespace: str
    team: str
    owner: str
    sweep: str
    model: str
    allocated: float
    used: float
    idle: float
    unknown: float
    price: float | None = None  # of a GPU-hour, as stored with the hours; None: the current one counts


# namespace, team, owner, sweep, model, price
GroupKey = tuple[str, str, str, str, str, float | None]


@dataclass(kw_only=True)
class Totals:
    """Sums over several hours."""

    coverage: float = 0.0  # hours with metrics
    groups: dict[GroupKey, list[float]] = field(default_factory=dict)  # allocated, used, idle, unknown

    @property
    def uses(self) -> tuple[UsageSum, ...]:
        return tuple(UsageSum._make((*key[:-1], *sums, key[-1])) for key, sums in self.groups.items())

    @property
    def in_use(self) -> "Totals":
        """Return the sums without placeholders of reservations."""
        groups = {key: sums for key, sums in self.groups.items() if key[3] != RESERVED}
        return Totals(coverage=self.coverage, groups=groups)

    @classmethod
    def of(cls, uses: UseColumns, coverage: float = 0.0) -> "Totals":
        totals = cls(coverage=coverage)
        totals.add_pods(uses)
        return totals

    @classmethod
    def all(cls, totals: Iterable["Totals"]) -> "Totals":
        """Return the sum of several clusters. The coverage is that of the one with the most."""
        whole = cls()
        for each in totals:
            whole.coverage = max(whole.coverage, each.coverage)
            whole.add(each.groups.items())
        return whole

    def add_pods(self, uses: UseColumns) -> None:
        keys = zip(uses.namespace, uses.team, uses.owner, uses.sweep, uses.model, uses.price, strict=True)
        hours = zip(uses.allocated, uses.used, uses.idle, uses.unknown, strict=True)
        self.add(zip(keys, hours, strict=True))

    def add(self, rows: Iterable[tuple[GroupKey, Iterable[float]]]) -> None:
        """Add rows of `groups`: a month can have a million."""
        groups = self.groups
        for key, (allocated, used, idle, unknown) in rows:
            if (sums := groups.get(key)) is None:
                groups[key] = [allocated, used, idle, unknown]
            else:
                sums[0] += allocated
                sums[1] += used
                sums[2] += idle
                sums[3] += unknown


@dataclass(kw_only=True)
class Sums:
    """GPU-hours, and their cost as far as prices are configured."""

    allocated: float = 0.0
    used: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0
    cost: float = 0.0
    wasted: float = 0.0  # cost of the idle ones
    unpriced: set[str] = field(default_factory=set)  # models without a price

    @property
    def measured(self) -> float:
        return self.allocated - self.unknown

    @property
    def pauses(self) -> float:
        """Return what was measured and is neither used nor idle."""
        return max(0.0, self.measured - self.used - self.idle)

    def add(self, use: Use, price: float | None) -> None:
        self.allocated += use.allocated
        self.used += use.used
        self.idle += use.idle
        self.unknown += use.unknown
        self.cost += use.allocated * (price or 0.0)
        self.wasted += use.idle * (price or 0.0)
        if price is None:
            self.unpriced.add(use.model or "an unknown model")


def current_prices(
    kinds: Iterable[tuple[str, str]], prices: tuple[Price, ...]
) -> dict[tuple[str, str], float | None]:
    """Return the current price of a GPU-hour of each team and model; None without one."""
    return {(team, model): price_of(prices_for(prices, team), model) for team, model in {*kinds}}


def charged(uses: Collection[UseT], prices: tuple[Price, ...]) -> Iterator[tuple[UseT, float | None]]:
    """Yield each use with its price per GPU-hour: as stored with its hour, else the current one."""
    hourly = current_prices(((use.team, use.model) for use in uses), prices)
    for use in uses:
        yield use, hourly[use.team, use.model] if use.price is None else use.price


def grouped(uses: Collection[UseT], prices: tuple[Price, ...], key: Callable[[UseT], str]) -> dict[str, Sums]:
    """Return the sums by `key`, the most allocated first."""
    groups: dict[str, Sums] = defaultdict(Sums)
    for use, price in charged(uses, prices):
        groups[key(use)].add(use, price)
    return ordered(groups)


def summed(uses: Collection[UseT], prices: tuple[Price, ...]) -> Sums:
    return grouped(uses, prices, lambda _: "").get("", Sums())


def ordered(groups: Mapping[str, Sums]) -> dict[str, Sums]:
    """Return the groups, the most allocated first, and those with equally much by their names."""
    return dict(sorted(groups.items(), key=lambda each: (-each[1].allocated, each[0])))
