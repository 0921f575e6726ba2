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
    trial_hours: float | None = None  # maximum run time of a trial on its node; None: no limit
    grace_seconds: int | None = None  # from SIGTERM to SIGKILL; None: the cluster's default
    parameters: tuple[Parameter, ...]
    finish_running: bool = False  # when the target is reached, let running trials finish
    image: str = ""  # prebuilt; nothing is built
    watch: dict[str, float] = field(default_factory=dict)  # overrides of the configuration's thresholds
    seed: str = ""  # the parameter of a sweep over seeds; "": a search
    extendable: bool = False  # keep the suggestion service after the end, so that trials can be added


def command_line(space: SearchSpace, parameters: dict[str, str]) -> str:
    """Return the command that trains with these values."""
    return " ".join([space.command, *(shlex.quote(f"--{k}={v}") for k, v in parameters.items())])
