"""A search space that passed every check: goals, metric sources, which value of a trial counts, how many
start at once, and the command line of one trial.
"""

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bot.core.flags import FlagStyle, flag, in_order, variable
from bot.core.flags import words as flag_words
from bot.core.stopping import StoppingRule

FOLDER = "sweeps"


AUTO = "auto"  # the search service if the installation has it, else FALLBACK
ALGORITHMS = (AUTO, "random", "grid", "tpe", "bayesianoptimization", "cmaes", "sobol", "multivariate-tpe")
FALLBACK = "random"
SEARCH_SERVICE = "sweepbot"  # its name in katib-config and in experiments


class Goal(StrEnum):
    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class MetricSource(StrEnum):
    """Where the training writes its metrics."""

    TENSORBOARD = "tensorboard"
    STDOUT = "stdout"
    FILE = "file"
    PUSH = "push"  # kubeflow.katib.report_metrics


TENSORBOARD_PARAMETER = "tensorboard_dir"
STRATEGIES = ("min", "max", "latest")  # which of a trial's values counts


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
    when: tuple[str, ...] = ()  # another parameter, and its values with which this one is passed; (): always

    def is_active(self, values: Mapping[str, str]) -> bool:
        return not self.when or values.get(self.when[0]) in self.when[1:]

    def unit(self, value: float) -> float:
        """Return the position of a value in the range, from 0 to 1, on its scale."""
        low, high = float(self.min or 0), float(self.max or 0)
        if low == high:
            return 0.0
        if self.log:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """Points of an earlier sweep that the search tries first; none if no sweep was found."""

    sweep: str = ""
    points: tuple[dict[str, str], ...] = ()  # by rank, the best first; they can lack parameters
    why: str = ""  # this sweep: for users


BRANCH = "branch"  # the parameter of a comparison of branches: it isn't passed to the training


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """How a sweep compares branches: all run the same settings, and the two best ones the finals."""

    branches: tuple[str, ...]  # as the trials name them
    seed: str  # parameter: 0 for the shared settings, from 1 in the finals
    settings: int  # that the branches share; from three on, the two best ones run the second half
    finals: int  # of these, the settings that run on two branches with one seed after another


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """A space file that passed every check."""

    name: str
    command: str
    metric: str
    goal: Goal
    target: float | None = None
    algorithm: str = FALLBACK  # of ALGORITHMS, or what AUTO was resolved to
    settings: dict[str, str] = field(default_factory=dict)  # of the algorithm, as Katib takes them
    max_trials: int
    parallel: int
    auto: bool = False  # `parallel` is the maximum: Sweepbot follows free GPUs
    max_failed: int
    trial_hours: float | None = None  # maximum run time of a trial on its node; None: no limit
    max_hours: float | None = None  # of the whole sweep, since its first trial's start; None: no limit
    budget: str = ""  # of the whole sweep: GPU-hours, or money with its currency; "": no limit
    gate: bool = False  # whether one trial must be healthy before the others start
    nodes: int | None = None  # of one trial; None: the profile decides
    grace_seconds: int | None = None  # from SIGTERM to SIGKILL; None: the cluster's default
    parameters: tuple[Parameter, ...]
    finish_running: bool = False  # when the target is reached, let running trials finish
    image: str = ""  # prebuilt; nothing is built
    watch: dict[str, float] = field(default_factory=dict)  # overrides of the configuration's thresholds
    source: MetricSource = MetricSource.TENSORBOARD
    metrics_path: str = ""  # of MetricSource.FILE, in the container
    additional: tuple[str, ...] = ()  # metrics shown next to the objective
    goals: dict[str, Goal] = field(default_factory=dict)  # of additional metrics that are objectives, too
    strategy: dict[str, str] = field(default_factory=dict)  # by metric, where it isn't the goal's
    flags: FlagStyle = FlagStyle.DOTS
    switches: bool = False  # pass true as a bare flag, and false as none
    fixed: dict[str, str] = field(default_factory=dict)  # values that all trials get
    early_stopping: dict[str, str] | None = None  # settings of Katib's medianstop; None: off
    stopping: StoppingRule | None = None  # early stopping by Sweepbot; None: off
    notes: tuple[str, ...] = ()  # what of another tool's file isn't used
    seed: str = ""  # the parameter of a sweep over seeds; "": a search
    pairs: Pairs | None = None  # how it compares branches; None: it runs one
    volumes: tuple[str, ...] = ()  # names that the configuration allows
    env: dict[str, str] = field(default_factory=dict)  # variables that the configuration allows
    secrets: tuple[str, ...] = ()  # as volumes
    output_flag: str = ""  # that passes a directory on a volume, one for each trial; "": none
    output_dir: str = ""  # parent of these directories; "": none
    warm_start: WarmStart | None = None  # None: not requested
    extendable: bool = False  # keep the suggestion service after the end, so that trials can be added

    @property
    def passed(self) -> tuple[Parameter, ...]:
        """The parameters that the training gets."""
        return tuple(each for each in self.parameters if not (self.pairs and each.name == BRANCH))

    @property
    def names_best(self) -> bool:
        """Whether its best trial means something: not if trials differ by luck, as those of seeds do."""
        return not self.seed and self.pairs is None

    @property
    def objectives(self) -> dict[str, Goal]:
        """Return the goals by metric. Where one trial is named the best, it is by the first objective."""
        return {self.metric: self.goal, **self.goals}

    @property
    def strategies(self) -> dict[str, str]:
        """Return which value of a trial counts, by metric; the objective comes first."""
        usual = {Goal.MAXIMIZE: "max", Goal.MINIMIZE: "min"}
        return {
            name: self.strategy.get(name, usual[self.goals.get(name, self.goal)])
            for name in (self.metric, *self.additional)
        }

    @property
    def first_parallel(self) -> int:
        """Return how many trials start at once, after the gate if there is one."""
        return 1 if self.auto else self.parallel

    @property
    def parallel_text(self) -> str:
        return f"1 to {self.parallel} in parallel (auto)" if self.auto else f"{self.parallel} in parallel"

    def is_switch(self, name: str) -> bool:
        """Return whether a parameter is passed as a bare flag."""
        values = next((p.values for p in self.parameters if p.name == name), (self.fixed.get(name, ""),))
        return self.switches and bool(values) and set(values) <= {"true", "false"}


def command_line(space: SearchSpace, parameters: Mapping[str, str], **more: str) -> str:
    """Return the command that trains with these values. `more`: values that aren't of the space."""
    passed = {name: value for name, value in parameters.items() if not (space.pairs and name == BRANCH)}
    own = {**space.fixed, **passed}
    values = {name: own[name] for name in in_order(own)} | more
    variables = [f"{variable(name)}={shlex.quote(value)}" for name, value in values.items()]
    words = [shlex.quote(word) for name, value in values.items() for word in _words(space, name, value)]
    return " ".join([*(variables if space.flags is FlagStyle.ENV else ()), space.command, *words])


def _words(space: SearchSpace, name: str, value: str) -> list[str]:
    if space.is_switch(name):
        return [flag(space.flags, name)] if value == "true" else []
    return flag_words(space.flags, name, value)
