"""Compare the two best branches of a sweep by their pairs, the same setting and seed on both, and word
whether one is better. Pure.

The branch of the best trial says little: with the noise between seeds, it is often the luckiest one's. A
claim needs a bootstrap interval of the differences without 0 in it. `python -m bench branches` measures how
many claims are right.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Protocol

from bot.core.space import BRANCH, Goal, SearchSpace
from bot.platform.slack.mrkdwn import code
from bot.text.wording import counted, listed

MIN_PAIRS = 8  # below, a few lucky pairs make a claim
RESAMPLES = 2_000
SHARE = 0.95
RELATIVE = 1e-9  # of a spread
LARGEST = 1e100  # of a value: sums and differences of larger ones can exceed a float


class TrialValue(Protocol):
    @property
    def parameters(self) -> Mapping[str, str]: ...
    @property
    def value(self) -> float | None: ...


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Both trials' values of the objective."""

    seed: str
    setting: Mapping[str, str]
    better: float  # on the better branch
    other: float


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two branches, the one with the better mean first. Differences are above 0 where it is better."""

    better: str
    other: str
    pairs: tuple[Pair, ...]
    difference: float  # mean
    interval: tuple[float, float] | None  # of that mean; None: too few pairs
    left: tuple[str, ...] = ()  # branches that didn't reach the finals

    @property
    def is_shown(self) -> bool:
        """Whether the pairs show that one branch is better."""
        return self.interval is not None and self.interval[0] > 0


def compared(space: SearchSpace, trials: Iterable[TrialValue]) -> Compared | None:
    """Return the comparison of the two branches with the most trials in the finals; None without a pair."""
    if space.pairs is None:
        return None
    finals = _finals(space.pairs.seed, trials)
    both = [values for values in finals.values() if len(values) > 1]
    most = {name for name, _ in Counter(name for values in both for name in values).most_common(2)}
    if not most:
        return None
    first, second = (name for name in space.pairs.branches if name in most)
    sign = 1 if space.goal is Goal.MAXIMIZE else -1
    found = {key: values for key, values in finals.items() if most <= values.keys()}
    gains = [sign * (values[first] - values[second]) for values in found.values()]
    if fmean(gains) < 0:
        first, second, gains = second, first, [-gain for gain in gains]
    return Compared(
        better=first,
        other=second,
        pairs=tuple(
            Pair(seed=seed, setting=dict(setting), better=values[first], other=values[second])
            for (seed, setting), values in sorted(found.items(), key=lambda each: (each[0][1], each[0][0]))
        ),
        difference=fmean(gains),
        interval=bootstrap(gains) if len(gains) >= MIN_PAIRS else None,
        left=tuple(name for name in space.pairs.branches if name not in most),
    )


def _finals(
    seed: str, trials: Iterable[TrialValue]
) -> dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, float]]:
    """Return the values by branch, by seed and setting. Seed 0 chose the settings, so it isn't in them."""
    found = dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, float]]()
    for trial in trials:
        own = dict(trial.parameters)
        branch, number = own.pop(BRANCH, ""), own.pop(seed, "0")
        if branch and number != "0" and trial.value is not None and abs(trial.value) < LARGEST:
            found.setdefault((number, tuple(sorted(own.items()))), {})[branch] = trial.value
    return found


def bootstrap(differences: Sequence[float]) -> tuple[float, float]:
    """Return the studentized interval of the mean; the same each time.

    The plain one, of the resamples' means alone, is too narrow for a dozen values: of two equal branches, it
    named one in 5 to 17% of comparisons.
    """
    draw = Random(0)  # noqa: S311 - not for secrets
    mean, own_spread = _mean_and_spread(differences)
    resamples = (_mean_and_spread(draw.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    least = RELATIVE * own_spread  # below, all of a resample are equal, but for their last digits
    distances = sorted((each - mean) / spread for each, spread in resamples if spread > least)
    if not distances:  # all are equal
        return mean, mean
    cut = round(len(distances) * (1 - SHARE) / 2)
    middle = distances[cut : len(distances) - cut]
    return mean - max(middle) * own_spread, mean - min(middle) * own_spread


def _mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, but for a factor: it is the same for all resamples."""
    mean = fmean(values)
    return mean, math.sqrt(sum((each - mean) ** 2 for each in values))


def verdict(space: SearchSpace, found: Compared | None, name: Callable[[str], str] = code) -> str:
    """Return what the pairs show, without a period. `name`: how names are written; by default in mrkdwn."""
    if found is None:
        return "No difference between the branches shown: no pair of the finals has two results"
    pairs, between = counted(len(found.pairs), "pair"), f"{name(found.better)} and {name(found.other)}"
    if found.interval is None:
        return f"No difference between {between} shown: {pairs}, and a claim needs {MIN_PAIRS}"
    low, high = (_amount(found, each) for each in found.interval)
    spread = f"95%: {low} to {high}; {pairs} of one setting and seed"
    ends = f". {listed(map(name, found.left))} didn't reach the finals" if found.left else ""
    if not found.is_shown:
        return f"No difference between {between} shown with this budget ({spread}){ends}"
    by = f"{_amount(found, found.difference)} of {name(space.metric)}"
    return f"{name(found.better)} is better than {name(found.other)} by {by} ({spread}){ends}"


def _amount(found: Compared, difference: float) -> str:
    """Return it in percent of the other branch's mean; as it is if values aren't all positive, or that is
    close to 0.
    """
    base = fmean(each.other for each in found.pairs)
    if found.difference > 10 * base or any(min(each.better, each.other) <= 0 for each in found.pairs):
        return f"{difference:.3g}"
    percent = 100 * difference / base
    return f"{percent:,.0f}%" if abs(percent) >= 10 else f"{percent:.2g}%"
