"""Find the parameter values with which trials fail, unless chance explains it. Pure.

Of all thresholds, categories, and pairs of these, the one counts that splits failed and finished trials best.
Fisher's exact test says how often a split this good would occur if failures were independent of the
parameters; it is multiplied by the number of splits that were tried.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from itertools import combinations
from math import comb, isnan, nan

from bot.core.space import Parameter
from bot.text.number_format import finite

MAX_TRIALS = 400  # the latest ones
MAX_BOUNDS = 12  # thresholds of one parameter and direction
MIN_FAILED = 3
MIN_SHARE = 0.9  # of the trials with these values that failed, and of all failed trials
MAX_CHANCE = 0.02
BETTER = 10  # how much less likely by chance a split must be than one by other parameters

Row = tuple[Mapping[str, str], bool]  # a trial's parameters, and whether it failed


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Values of one parameter."""

    name: str
    sign: str  # ≥, ≤, or =
    bound: str  # a number; of =, values with " or " between

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.bound}"


@dataclass(frozen=True, kw_only=True)
class Pattern:
    conditions: tuple[Condition, ...] = ()
    failed: int = 0  # of those with these values
    trials: int = 0  # with these values
    failed_others: int = 0
    others: int = 0
    chance: float = 1.0  # at most, after correction for the number of splits tried


@dataclass(frozen=True)
class _Split:
    conditions: tuple[Condition, ...]
    rows: int  # a bit for each trial


def find_pattern(rows: Sequence[Row], parameters: Iterable[Parameter]) -> Pattern | None:
    """Return the values with which trials fail; None if chance, or several parameters, can explain it."""
    rows = rows[-MAX_TRIALS:]
    failed = _bits(failed for _, failed in rows)
    if failed.bit_count() < MIN_FAILED or failed.bit_count() == len(rows):
        return None
    singles = [_of_one(rows, failed, parameter) for parameter in parameters]
    tried = sum(map(len, singles))
    best = _best((split for each in singles for split in each), failed, len(rows), tried, 2 * len(singles))
    # Of the pairs, which are millions with a hundred parameters, only these can have most failures.
    likely = [
        [one for one in each if (one.rows & failed).bit_count() >= MIN_SHARE * failed.bit_count()]
        for each in singles
    ]
    pairs = (
        _Split(one.conditions + other.conditions, one.rows & other.rows)
        for left, right in combinations(likely, 2)
        for one in left
        for other in right
    )
    tried = sum(len(left) * len(right) for left, right in combinations(singles, 2))
    directions = 2 * len(singles) * (len(singles) - 1) * failed.bit_count()
    pair = _best(pairs, failed, len(rows), tried, directions)
    if best and not (pair and pair.chance * BETTER < best.chance):
        return best
    return pair


def _of_one(rows: Sequence[Row], failed: int, parameter: Parameter) -> list[_Split]:
    """Return the splits by one parameter; a trial in which its condition isn't met is in none of them."""
    values = [given.get(parameter.name) for given, _ in rows]
    numbers = [nan if value is None else finite(value) for value in values]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        found = _categories(values, failed, parameter.name)
    else:
        exact = bool(parameter.values) or parameter.integer or parameter.step is not None
        found = _thresholds(known, failed, parameter.name, exact=exact)
    present = _bits(value is not None for value in values)
    return [each for each in found if each.rows != present]


def _categories(values: Sequence[str | None], failed: int, name: str) -> Iterator[_Split]:
    of = {
        value: _bits(each == value for each in values) for value in dict.fromkeys(values) if value is not None
    }
    bad = [value for value, bits in of.items() if 2 * (bits & failed).bit_count() > bits.bit_count()]
    for group in [*([value] for value in of), *([bad] if 1 < len(bad) < len(of) else [])]:
        bits = sum(of[value] for value in group)
        yield _Split((Condition(name=name, sign="=", bound=" or ".join(group)),), bits)


def _thresholds(numbers: Sequence[float], failed: int, name: str, *, exact: bool) -> Iterator[_Split]:
    """Yield splits at values of failed trials, which are the only ones that can be best.

    `exact`: the parameter has few values; else, a shorter number between two of them is as good.
    """
    bad = sorted({each for place, each in enumerate(numbers) if failed >> place & 1 and not isnan(each)})
    top = bad[-1:]
    bad = bad[:: -(-len(bad) // MAX_BOUNDS) or 1]
    for bound in bad:
        below = max((number for number in numbers if number < bound), default=None)
        condition = Condition(name=name, sign="≥", bound=_text(bound, bound if exact else below))
        yield _Split((condition,), _bits(number >= bound for number in numbers))
    for bound in {*bad, *top}:
        above = min((number for number in numbers if number > bound), default=None)
        condition = Condition(name=name, sign="≤", bound=_text(bound, bound if exact else above))
        yield _Split((condition,), _bits(number <= bound for number in numbers))


def _best(splits: Iterable[_Split], failed: int, total: int, tried: int, directions: int) -> Pattern | None:
    """Return the least likely split by chance; None if it isn't unlikely enough, or not the only one.

    Args:
        tried: number of splits, also of those that can't be the best.
        directions: splits of one size that were tried. A perfect split has the size of the failures, so
            the others don't count.
    """
    found: list[Pattern] = []
    all_failed = failed.bit_count()
    chances: dict[tuple[int, int], float] = {}
    for split in splits:
        inside, hits = split.rows.bit_count(), (split.rows & failed).bit_count()
        if inside == total or hits < MIN_FAILED or hits < MIN_SHARE * max(inside, all_failed):
            continue
        perfect = hits == inside == all_failed
        if (inside, hits) not in chances:
            chances[inside, hits] = _fisher(total, all_failed, inside, hits)
        chance = chances[inside, hits] * (directions if perfect else max(tried, directions))
        found.append(
            Pattern(
                conditions=split.conditions,
                failed=hits,
                trials=inside,
                failed_others=all_failed - hits,
                others=total - inside,
                chance=chance,
            )
        )
    best = min(found, key=lambda each: each.chance, default=None)
    if best is None or best.chance > MAX_CHANCE:
        return None
    rivals = [each for each in found if each.chance < best.chance * BETTER]
    names = {tuple(condition.name for condition in each.conditions) for each in rivals}
    return best if len(names) == 1 else None


def _fisher(total: int, failed: int, inside: int, hits: int) -> float:
    """Return the probability of at least so many hits among `inside` of `total` trials."""
    ways = sum(
        comb(failed, n) * comb(total - failed, inside - n) for n in range(hits, min(failed, inside) + 1)
    )
    return ways / comb(total, inside)


def _bits(flags: Iterable[bool]) -> int:
    return sum(1 << place for place, flag in enumerate(flags) if flag)


def _text(bound: float, beyond: float | None) -> str:
    """Return the shortest number between the bound and the next value, which is beyond it."""
    low, high = sorted((bound, bound if beyond is None else beyond))
    toward = ROUND_CEILING if low == bound else ROUND_FLOOR
    contexts = (Context(prec=digits, rounding=toward) for digits in range(1, 17))
    texts = (f"{float(each.create_decimal(repr(bound))):.{each.prec}g}" for each in contexts)
    text = next((each for each in texts if low <= float(each) <= high and float(each) != beyond), repr(bound))
    return str(int(bound)) if beyond == bound and bound.is_integer() else text
