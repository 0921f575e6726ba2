"""A search space that passed every check, and the command line of one trial in it."""

import shlex
from dataclasses import dataclass, field
from enum import StrEnum

FOLDER = "sweeps"


ALGORITHMS = ("random", "grid", "tpe", "bayesianoptimization", "cmaes", "sobol", "multivariate-tpe")


class Goal(StrEnum):
    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One dimension of the search. `values` for categories, otherwise a range of numbers."""

    name: str
    values: tuple[str, ...] = ()
    min: float | int | None = None
    max: float | int | None = None
    step: float | int | None = None
    log: bool = False
    integer: bool = False


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """A space file that passed every check."""

    name: str
    command: str
    metric: str
    goal: Goal
    target: float | None = None
    algorithm: str = "random"
    settings: dict[str, str] = field(default_factory=dict)  # of the algorithm, as Katib takes them
    max_trials: int
    parallel: int
    max_failed: int
    trial_hours: float | None = None  # that a trial may take on its node; None: as long as it likes
    grace_seconds: int | None = None  # from SIGTERM to SIGKILL; None: the cluster's default
    parameters: tuple[Parameter, ...]
    finish_running: bool = False  # when the target is reached: let running trials end by themselves
    image: str = ""  # a ready one, on which nothing is built
    watch: dict[str, float] = field(default_factory=dict)  # what differs from the configuration's Watch
    extendable: bool = False  # its suggestion service stays after the end, so more trials can follow


def command_line(space: SearchSpace, parameters: dict[str, str]) -> str:
    """What a person types to train with these values."""
    return " ".join([space.command, *(shlex.quote(f"--{k}={v}") for k, v in parameters.items())])
