"""Rank trials by their objective: the one rule for the best trial, wherever one is named. Pure."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from bot.core.space import Goal


class Ranked(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> float | None: ...


RankedT = TypeVar("RankedT", bound=Ranked)


def ranked(goal: Goal, trials: Iterable[RankedT], reported: str = "") -> list[RankedT]:
    """Return the trials, the best first, those without a finite objective last.

    Whatever reported a value counts, also a trial that was stopped early or cancelled. Of equal trials, the
    one already `reported` as best comes first, then by name. Katib's currentOptimalTrial isn't used: it never
    changes again after a NaN.
    """
    sign = -1 if goal is Goal.MAXIMIZE else 1

    def place(trial: Ranked) -> tuple[bool, float, bool, str]:
        return trial.value is None, sign * (trial.value or 0.0), trial.name != reported, trial.name

    return sorted(trials, key=place)


def best(goal: Goal, trials: Iterable[RankedT], reported: str = "") -> RankedT | None:
    """Return the first of `ranked`; None without a finite objective."""
    finite = [trial for trial in trials if trial.value is not None]
    return ranked(goal, finite, reported)[0] if finite else None
