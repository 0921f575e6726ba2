"""Rank trials by their objective: the only rule for the best trial in messages, tables, and files; and find
the Pareto front of several objectives. Pure.

Also numbers that plots and statistics can subtract without an overflow.
"""

from collections.abc import Iterable, Mapping
from operator import le
from typing import Protocol, TypeVar

from bot.core.space import Goal
from bot.text.number_format import finite


class Ranked(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> float | None: ...


RankedT = TypeVar("RankedT", bound=Ranked)


def ranked(goal: Goal, trials: Iterable[RankedT], reported: str = "") -> list[RankedT]:
    """Return the trials, best first, and those without a finite objective last.

    Trials that were stopped early or cancelled count if they reported a value. Equal trials are sorted by
    name, after the one already `reported` as best. Katib's currentOptimalTrial isn't used: after a NaN it
    never changes again.
    """
    sign = -1 if goal is Goal.MAXIMIZE else 1

    def place(trial: Ranked) -> tuple[bool, float, bool, str]:
        return trial.value is None, sign * (trial.value or 0.0), trial.name != reported, trial.name

    return sorted(trials, key=place)


def best(goal: Goal, trials: Iterable[RankedT], reported: str = "") -> RankedT | None:
    """Return the first of `ranked`; None without a finite objective."""
    finite = [trial for trial in trials if trial.value is not None]
    return ranked(goal, finite, reported)[0] if finite else None


class Measured(Ranked, Protocol):
    @property
    def more(self) -> Mapping[str, float]: ...


MeasuredT = TypeVar("MeasuredT", bound=Measured)


def pareto_front(objectives: Mapping[str, Goal], trials: Iterable[MeasuredT]) -> list[MeasuredT]:
    """Return the trials that no other one beats, the best by the first objective first.

    One beats another that is at least as good in all objectives and better in one. Trials that lack a value
    of an objective are left out. Takes seconds for thousands of trials if none beats another.
    """
    _, *others = objectives
    signs = [-1 if goal is Goal.MAXIMIZE else 1 for goal in objectives.values()]
    losses = []
    for trial in trials:
        values = [trial.value, *map(trial.more.get, others)]
        known = [sign * value for sign, value in zip(signs, values, strict=True) if value is not None]
        losses += [(known, trial.name, trial)] if len(known) == len(values) else []
    kept: list[tuple[list[float], MeasuredT]] = []
    for loss, _, trial in sorted(losses, key=lambda each: each[:2]):  # so later ones beat no earlier one
        if not any(all(map(le, one, loss)) and one != loss for one, _ in kept):
            kept.append((loss, trial))
    return [trial for _, trial in kept]


LIMIT = 1e100  # larger values count as this: a range up to 1e308 would overflow


def number(text: str) -> float | None:
    """Return a number within the limits; None for any other text."""
    value = finite(text)
    return None if value is None else clipped(value)


def clipped(value: float) -> float:
    return min(max(value, -LIMIT), LIMIT)
