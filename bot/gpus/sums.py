"""Sums of GPU-hours and their cost."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bot.config.teams import Price, price_of
from bot.gpus.models import HourUse


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

    def add(self, use: HourUse, price: float | None) -> None:
        self.allocated += use.allocated
        self.used += use.used
        self.idle += use.idle
        self.unknown += use.unknown
        self.cost += use.allocated * (price or 0.0)
        self.wasted += use.idle * (price or 0.0)
        if price is None:
            self.unpriced.add(use.model or "an unknown model")


def grouped(
    uses: Iterable[HourUse], prices: tuple[Price, ...], key: Callable[[HourUse], str]
) -> dict[str, Sums]:
    """Return the sums by `key`, the most allocated first."""
    groups: dict[str, Sums] = defaultdict(Sums)
    for use in uses:
        groups[key(use)].add(use, price_of(prices, use.model))
    return dict(sorted(groups.items(), key=lambda each: (-each[1].allocated, each[0])))
