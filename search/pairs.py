"""Propose the trials that compare branches of code: the same settings on each, then finals in pairs. Pure.

First, all branches run the same settings with one seed. After half of them, the two best branches go on. The
best settings of these two then run on both with more seeds: a pair differs in nothing but the branch. What a
trial runs follows from its position, and what was chosen so far from the trials themselves, so a failed trial
costs its own pair and no other.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from scipy.stats import qmc

from search.space import Choice, Finished, Point, Space

FINALISTS = 2
BEST_SHARE = 3  # a branch counts by the best third of its settings


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """What a comparison runs. `branch` and `seed` are parameters: a list, and whole numbers from 0."""

    branch: str
    seed: str
    settings: int  # that the branches share, with seed 0
    finals: int  # of these, the settings that run with the seeds from 1 on


@dataclass(frozen=True, kw_only=True)
class _Trial:
    setting: int  # its place in the shared settings
    branch: str
    seed: int
    value: float | None  # less is better; None: it runs, or was stopped


class _Comparison:
    def __init__(self, space: Space, pairs: Pairs, seed: int) -> None:
        found = next((each for each in space.dimensions if each.name == pairs.branch), None)
        others = tuple(each for each in space.dimensions if each.name not in {pairs.branch, pairs.seed})
        if not isinstance(found, Choice) or len(found.values) < FINALISTS:
            raise ValueError(f"pairs: {pairs.branch} must be a parameter with two values or more")
        if len(others) + 2 != len(space.dimensions):
            raise ValueError(f"pairs: {pairs.seed} must be a parameter")
        self.pairs, self.branches = pairs, found.values
        self.sign = -1 if space.maximize else 1
        self.settings = _distinct(replace(space, dimensions=others), pairs.settings, seed)
        total = len(self.settings)
        self.half = total if len(self.branches) == FINALISTS else -(-total // 2)

    def trials(self, points: Sequence[tuple[Point, float | None]]) -> Iterator[_Trial]:
        for point, value in points:
            own = {self.pairs.branch, self.pairs.seed}
            setting = {name: each for name, each in point.items() if name not in own}
            if setting in self.settings:
                yield _Trial(
                    setting=self.settings.index(setting),
                    branch=str(point[self.pairs.branch]),
                    seed=int(point[self.pairs.seed]),
                    value=None if value is None else self.sign * value,
                )

    def at(self, position: int, trials: Sequence[_Trial]) -> _Trial:
        """Return what the trial at this position runs."""
        many, first = len(self.branches), self.half * len(self.branches)
        if position < first:
            setting, branch = divmod(position, many)
            return _Trial(setting=setting, branch=self.branches[branch], seed=0, value=None)
        kept = self._finalists(trials)
        setting, side = divmod(position - first, FINALISTS)
        if self.half + setting < len(self.settings):
            return _Trial(setting=self.half + setting, branch=kept[side], seed=0, value=None)
        pair = setting - (len(self.settings) - self.half)
        seed, slot = divmod(pair, min(self.pairs.finals, len(self.settings)))
        chosen = (
            self._final_setting(trials, kept, slot, side) if seed == 0 else self._chosen(trials, kept)[slot]
        )
        return _Trial(setting=chosen, branch=kept[side], seed=seed + 1, value=None)

    def _finalists(self, trials: Sequence[_Trial]) -> list[str]:
        """Return the two branches that go on: those that do already, then the best ones."""
        later = Counter(each.branch for each in trials if each.setting >= self.half or each.seed)
        begun = [branch for branch, _ in later.most_common(FINALISTS)]
        if len(begun) == FINALISTS or len(self.branches) == FINALISTS:
            return [each for each in self.branches if each in begun or len(self.branches) == FINALISTS]
        left = [each for each in self.branches if each not in begun]
        return [*begun, *sorted(left, key=lambda each: self._level(trials, each))][:FINALISTS]

    def _level(self, trials: Sequence[_Trial], branch: str) -> float:
        """Return the mean of the branch's best third; infinity without a value."""
        own = (each.value for each in trials if each.branch == branch and not each.seed)
        values = sorted(value for value in own if value is not None)
        return fmean(values[: max(len(values) // BEST_SHARE, 1)]) if values else float("inf")

    def _final_setting(self, trials: Sequence[_Trial], kept: Sequence[str], slot: int, side: int) -> int:
        """Return a setting for the first seed: that of the pair's other half, or the best one left."""
        begun = {
            branch: {each.setting for each in trials if each.seed and each.branch == branch}
            for branch in kept
        }
        if side and (open_ := begun[kept[0]] - begun[kept[1]]):
            return min(open_)
        left = [each for each in self._ranked(trials, kept) if each not in begun[kept[side]]]
        return left[0] if left else self._ranked(trials, kept)[slot]

    def _chosen(self, trials: Sequence[_Trial], kept: Sequence[str]) -> list[int]:
        """Return the settings of the finals, in an order that stays: those begun, then the best ones."""
        begun = [
            setting for setting, _ in Counter(each.setting for each in trials if each.seed).most_common()
        ]
        ranked = [each for each in self._ranked(trials, kept) if each not in begun]
        return sorted([*begun, *ranked][: self.pairs.finals])

    def _ranked(self, trials: Sequence[_Trial], kept: Sequence[str]) -> list[int]:
        """Return all settings, the best first: by the sum of their places on the two branches."""
        places = Counter(dict.fromkeys(range(len(self.settings)), 0))
        for branch in kept:
            values = {each.setting: each.value for each in trials if each.branch == branch and not each.seed}
            known = {setting: value for setting, value in values.items() if value is not None}
            order = sorted(known, key=known.__getitem__)
            places.update({each: order.index(each) if each in known else len(places) for each in places})
        return sorted(places, key=places.__getitem__)


def paired(
    space: Space,
    pairs: Pairs,
    finished: Sequence[Finished],
    running: Sequence[Point],
    positions: Sequence[int],
    seed: int,
) -> list[Point]:
    """Return the points at these positions. Raises ValueError without the parameters of `pairs`."""
    comparison = _Comparison(space, pairs, seed)
    known: list[tuple[Point, float | None]] = [
        (each.point, None if each.stopped_at is not None else each.value) for each in finished
    ]
    trials = [*comparison.trials([*known, *((point, None) for point in running)])]
    points = []
    for position in positions:
        trial = comparison.at(position, trials)
        trials.append(trial)
        values = comparison.settings[trial.setting] | {pairs.branch: trial.branch, pairs.seed: trial.seed}
        points.append({each.name: values[each.name] for each in space.dimensions if each.name in values})
    return points


def _distinct(space: Space, count: int, seed: int) -> list[Point]:
    """Return so many different settings that cover the space; fewer if it has no more."""
    sequence = qmc.Sobol(len(space.dimensions), rng=np.random.default_rng(seed))
    found: list[Point] = []
    for units in sequence.random_base2((8 * count).bit_length()).tolist():
        point = space.active(space.at(units))
        if len(found) < count and point not in found:
            found.append(point)
    return found
