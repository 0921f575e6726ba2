"""The parameters of a search, as values: what is wrong with a range, a step, or a condition, and how points
are placed in them. Pure.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

LARGEST = 2**53  # of whole numbers and steps: above, a float can't tell neighbors apart

INACTIVE = "%inactive"  # what stands for a value whose condition isn't met; no value of a space has a %

Value = float | int | str
Point = dict[str, Value]


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A trial that has ended."""

    point: Point
    value: float  # finite; of a stopped trial the last one, which can be NaN
    others: tuple[float, ...] = ()  # of the other objectives; finite
    stopped_at: int | None = None  # the step at which it was stopped; None: it wasn't


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A parameter is only active where another one has one of these values."""

    parameter: str
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from `low` to `high`; with a step, `low` and each step from it. Raises ValueError."""

    name: str
    low: float | int
    high: float | int
    step: float | int | None = None
    log: bool = False
    integer: bool = False
    when: Condition | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high - self.low) and self.low <= self.high):
            raise ValueError(f"{self.name}: min must be at most max, and both finite")
        if self.step is not None and not (math.isfinite(self.step) and self.step > 0):
            raise ValueError(f"{self.name}: step must be above 0")
        if self.log and self.low <= 0:
            raise ValueError(f"{self.name}: a log scale needs a min above 0")
        if self.integer and max(abs(self.low), abs(self.high)) > LARGEST:
            raise ValueError(f"{self.name}: whole numbers can't exceed 2^53")
        if self.spacing and (self.high - self.low) / self.spacing > LARGEST:
            raise ValueError(f"{self.name}: step is too small for this range")

    @property
    def spacing(self) -> float | int | None:
        """The distance of neighbors; None if every number in the range is allowed."""
        return self.step or (1 if self.integer else None)

    @cached_property
    def count(self) -> int:
        """Return how many values the range has, as it has a spacing. Raises ValueError without one."""
        if self.spacing is None:
            raise ValueError(f"{self.name}: a grid needs a step here, or a list of values")
        width = Decimal(str(self.high)) - Decimal(str(self.low))  # exact, as `nth`: none is above `high`
        steps = int(width // Decimal(str(self.spacing)))
        last, more = self.nth(steps), self.nth(steps + 1)  # by a step of 1/15, rounded up, 1 is the 15th
        return steps + 1 + (last < more <= self.high)

    @property
    def top(self) -> float | int:
        """Return the largest value, which is below `high` if the step doesn't divide the range."""
        return self.high if self.spacing is None else self.nth(self.count - 1)

    def nth(self, index: int) -> float | int:
        """Return a value of a range with a spacing, without binary rounding: 0.3, not 0.30000000000000004."""
        exact = Decimal(str(self.low)) + index * Decimal(str(self.spacing))
        return int(exact) if self.integer else float(exact)

    def nearest(self, value: float) -> float | int:
        if self.spacing is None:
            return min(max(value, self.low), self.high)
        return self.nth(min(max(round((value - self.low) / self.spacing), 0), self.count - 1))

    def at(self, unit: float) -> float | int:
        """Return the value at a position from 0 to 1; all values of a spacing are equally wide."""
        if self.log:
            low, high = math.log(self.low), math.log(self.top)
            return self.nearest(math.exp(low + unit * (high - low)))
        if self.spacing is None:
            return self.nearest(self.low + unit * (self.high - self.low))
        return self.nth(min(int(unit * self.count), self.count - 1))

    def unit(self, value: float) -> float:
        """Return the position of a value from 0 to 1."""
        if self.top == self.low:
            return 0.5
        if self.log:
            low, top = math.log(self.low), math.log(self.top)
            return (math.log(value) - low) / (top - low)
        if self.spacing is None:
            return (value - self.low) / (self.high - self.low)
        return (round((value - self.low) / self.spacing) + 0.5) / self.count

    def read(self, text: str) -> float | int | None:
        """Return the value that is written so; None if it isn't one of this range."""
        try:
            number = float(text)
        except ValueError:
            return None
        if not self.low <= number <= self.top:  # NaN isn't
            return None
        near = self.nearest(number)
        return near if self.spacing is None or abs(near - number) <= 1e-9 * self.spacing else None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of some values, of which none is near another. Raises ValueError."""

    name: str
    values: tuple[str, ...]
    when: Condition | None = None

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"{self.name}: the list is empty")

    def at(self, unit: float) -> str:
        return self.values[min(int(unit * len(self.values)), len(self.values) - 1)]

    def read(self, text: str) -> str | None:
        return text if text in self.values else None


Dimension = Range | Choice


def _applies(dimension: Dimension, point: Point) -> bool:
    when = dimension.when
    return when is None or str(point.get(when.parameter)) in when.values


@dataclass(frozen=True, kw_only=True)
class Space:
    """What is searched. Raises ValueError without parameters, or for two of one name."""

    dimensions: tuple[Dimension, ...]
    maximize: bool = False
    others: tuple[bool, ...] = ()  # objectives besides the first: whether each is maximized

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise ValueError("the space has no parameters")
        if len({each.name for each in self.dimensions}) < len(self.dimensions):
            raise ValueError("two parameters have the same name")
        choices = {each.name: each for each in self.dimensions if isinstance(each, Choice) and not each.when}
        for each in self.dimensions:
            if each.when and not {*each.when.values} <= {
                *getattr(choices.get(each.when.parameter), "values", ())
            }:
                raise ValueError(f"{each.name}: the condition must name values of a list without a condition")

    @property
    def is_conditional(self) -> bool:
        return any(each.when for each in self.dimensions)

    @property
    def ranges(self) -> tuple[Range, ...]:
        return tuple(each for each in self.dimensions if isinstance(each, Range))

    def at(self, units: list[float]) -> Point:
        return {each.name: each.at(unit) for each, unit in zip(self.dimensions, units, strict=True)}

    def read(self, texts: Mapping[str, str]) -> Point | None:
        """Return the point that is written so; None if an active value is missing, or isn't in the space."""
        point = self.read_known({name: text for name, text in texts.items() if text != INACTIVE})
        if point is None:
            return None
        known = self.active(point)
        return (
            known
            if all(each.name in known or not _applies(each, point) for each in self.dimensions)
            else None
        )

    def active(self, point: Point) -> Point:
        """Return the point without the values whose condition isn't met."""
        return {
            each.name: point[each.name]
            for each in self.dimensions
            if each.name in point and _applies(each, point)
        }

    def read_known(self, texts: Mapping[str, str]) -> Point | None:
        """Return the values of the parameters that are given; None if one isn't in the space."""
        point: Point = {}
        for each in self.dimensions:
            value = each.read(texts[each.name]) if each.name in texts else None
            if value is not None:
                point[each.name] = value
            elif each.name in texts:
                return None
        return point
