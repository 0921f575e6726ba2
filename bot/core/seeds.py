"""Seeds of a sweep that repeats one command: the option's syntax, and the statistics of the results. Pure."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from bot.core.errors import UserError
from bot.text.wording import shortened

MAX_SEED = 2**32 - 1  # the largest that numpy accepts
MAX_OPTION = 2_000  # of the option
SEEDS_USAGE = "a number of seeds, or a list of seeds such as 0-4,7"
_COUNT, _ITEM = re.compile(r"[0-9]{1,10}"), re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")

# Quantiles (0.975) of Student's t distribution for 1 to 12 degrees of freedom.
_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788)
_NORMAL = 1.959964


@dataclass(frozen=True, kw_only=True)
class EarlierSeeds:
    """The results of a sweep of which other seeds are rerun, and what it ran."""

    sweep: str
    commit: str
    image: str  # its plan's `image_by_digest`
    values: dict[str, float]  # by seed


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Of finite values. The deviation and the interval are None for fewer than two values."""

    count: int
    mean: float
    deviation: float | None  # sample standard deviation
    interval: tuple[float, float] | None  # 95% confidence interval of the mean, by Student's t


def parse_seeds(text: str, limit: int) -> tuple[int, ...]:
    """Return the seeds of `5` (0 to 4), `3-7`, or `1,4,9-11`; `limit` is the maximum number of them.

    Raises UserError.
    """
    if len(text) > MAX_OPTION:
        raise UserError(f"seeds= can have at most {MAX_OPTION:,} characters; got {len(text):,}.")
    ranges = [(0, int(text) - 1)] if _COUNT.fullmatch(text) else _ranges(text)
    count = sum(last - first + 1 for first, last in ranges)
    if count > limit:
        raise UserError(
            f"seeds= can have at most {limit} seeds on this cluster (limits.trials); got {count}."
        )
    seeds = [seed for first, last in ranges for seed in range(first, last + 1)]
    if not seeds:
        raise UserError(f'seeds= must be {SEEDS_USAGE}; got "{shortened(text)}".')
    if max(seeds) > MAX_SEED:
        raise UserError(f"seeds= can be at most {MAX_SEED}; got {max(seeds)}.")
    return tuple(sorted(set(seeds)))


def _ranges(text: str) -> list[tuple[int, int]]:
    found = []
    for item in text.split(","):
        match = _ITEM.fullmatch(item.strip())
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if int(first) > int(last):
            raise UserError(f'seeds= must be {SEEDS_USAGE}; got "{shortened(text)}".')
        found.append((int(first), int(last)))
    return found


def seeds_option(seeds: Iterable[int]) -> str:
    """Return the option's value for these seeds: `1-3,5`. A single seed is a range: `3` means three seeds."""
    ranges: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    single = len(ranges) == 1
    return ",".join(f"{first}-{last}" if first < last or single else f"{first}" for first, last in ranges)


def statistics(values: Sequence[float]) -> Statistics | None:
    """Return None without values, and if they are too large: the sum of two can exceed a float."""
    if not values:
        return None
    count = len(values)
    if count == 1:
        return Statistics(count=1, mean=values[0], deviation=None, interval=None)
    try:
        mean, deviation = fmean(values), stdev(values)
    except OverflowError:
        return None
    half = _quantile(count - 1) * deviation / math.sqrt(count)
    return Statistics(count=count, mean=mean, deviation=deviation, interval=(mean - half, mean + half))


def next_value(found: Statistics) -> tuple[float, float] | None:
    """Return the 95% prediction interval of one more value, wider than that of the mean; None below 2."""
    if found.deviation is None:
        return None
    half = _quantile(found.count - 1) * found.deviation * math.sqrt(1 + 1 / found.count)
    return found.mean - half, found.mean + half


def _quantile(freedom: int) -> float:
    """Return Student's t quantile: above the table by its expansion (Abramowitz and Stegun, 26.7.5)."""
    if freedom <= len(_QUANTILES):
        return _QUANTILES[freedom - 1]
    z, n = _NORMAL, freedom
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
