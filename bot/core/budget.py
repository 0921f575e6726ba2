"""The most that a sweep is meant to use, in GPU-hours, or in money at a price per GPU-hour: how an amount is
typed (`40`, `$100`), and shown. Pure.
"""

import re
from dataclasses import dataclass

from bot.text.number_format import hours, money

AMOUNT = re.compile(r"([^0-9\s]{0,8}) ?([0-9]{1,8}(?:\.[0-9]{1,4})?)")  # a currency, or none, and a number
GPU_HOURS = " GPU-h"
RULE = "GPU-hours, such as 40, or money, such as {}: from 0.0001 to 99,999,999, with up to 4 decimals"


@dataclass(frozen=True, kw_only=True)
class Budget:
    gpu_hours: float
    price: float = 0.0  # of one GPU-hour; 0: it was set in GPU-hours
    currency: str = ""
    usual: float | None = None  # GPU-hours of a trial in the latest sweep of the space; None: unknown

    def amount(self, gpu_hours: float) -> str:
        """Format GPU-hours in the budget's unit, which is only named if it is money."""
        return money(gpu_hours * self.price, self.currency) if self.price else hours(gpu_hours)

    @property
    def text(self) -> str:
        """`40 GPU-h`, `$100`."""
        return self.amount(self.gpu_hours) + ("" if self.price else GPU_HOURS)


@dataclass(frozen=True, kw_only=True)
class Amount:
    """A limit of GPU-hours, or of money."""

    number: float
    currency: str = ""  # "": GPU-hours

    def text(self, number: float | None = None) -> str:
        """`$100`, `40 GPU-h`; of another number in the same unit."""
        number = self.number if number is None else number
        return money(number, self.currency) if self.currency else f"{hours(number)}{GPU_HOURS}"


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a trial or a sweep will use, as far as is known before it starts."""

    gpu_hours: float | None  # None: unknown
    price: float = 0.0  # of one GPU-hour, the highest that it can be; 0: none is configured

    def of(self, amount: Amount) -> float | None:
        """Return it in the unit of an amount; None if unknown."""
        if not amount.currency or not self.gpu_hours:
            return self.gpu_hours
        return self.gpu_hours * self.price if self.price else None


def amount_of(text: str) -> Amount:
    """Return what `AMOUNT` matches."""
    found = AMOUNT.fullmatch(text)
    return Amount(number=float(found[2]), currency=found[1]) if found else Amount(number=0)


def read_budget(text: str, currency: str) -> tuple[float, bool]:
    """Return the number, and whether it is money in this currency. Raises ValueError with the rule."""
    found = AMOUNT.fullmatch(text)
    if found is None or found[1] not in {"", currency} or not float(found[2]):
        raise ValueError(RULE.format(f"{currency}100"))
    return float(found[2]), bool(found[1])
