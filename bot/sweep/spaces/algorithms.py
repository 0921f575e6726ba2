"""Search algorithms of a space (`algorithm:`): settings, what each can't search, why hyperband and others are
refused, and which one `auto` is. Pure.

Katib accepts any space with any algorithm. What an algorithm doesn't support is ignored without an error, or
the sweep waits forever. The restrictions here come from the source of Katib's suggestion services
(pkg/suggestion/v1beta1 in v0.18 and v0.19) and their libraries: goptuna 0.8, optuna 3.3, hyperopt 0.2.5, and
scikit-optimize 0.10.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from bot.core.seeds import MAX_SEED
from bot.core.space import ALGORITHMS, AUTO, FALLBACK, SEARCH_SERVICE, Parameter
from bot.platform.config.rules import Key, OneOf, Rule, Schema
from bot.platform.config.section import json_schema, read_node
from bot.platform.config.value_types import AsNumber, Text, Whole
from bot.platform.config.yaml_reader import Node
from bot.text.wording import did_you_mean


@dataclass(frozen=True)
class _Above(Rule):
    least: float
    below: float = math.inf

    def check(self, value: Any) -> Any:
        if not self.least < value < self.below:
            end = "" if math.isinf(self.below) else f" and below {self.below}"
            raise ValueError(f"must be above {self.least}{end}; got {value}")
        return value

    def described(self, schema: Schema) -> Schema:
        below = {} if math.isinf(self.below) else {"exclusiveMaximum": self.below}
        return schema | {"exclusiveMinimum": self.least} | below


def _whole(least: int, most: int | None = None) -> Any:
    return Annotated[Whole, Key(least=least, most=most)]


def _above(least: float, below: float = math.inf) -> Any:
    return Annotated[AsNumber, _Above(least, below)]


def _one_of(*words: str) -> Any:
    return Annotated[Text, OneOf(words)]


_SEED = {"random_state": _whole(0, MAX_SEED)}
ALGORITHM_SETTINGS: dict[str, dict[str, Any]] = {
    AUTO: {},
    "random": _SEED,
    "grid": _SEED,
    "tpe": {"gamma": _above(0, 1), "prior_weight": _above(0), "n_EI_candidates": _whole(1), **_SEED},
    "multivariate-tpe": {"n_startup_trials": _whole(0), "n_ei_candidates": _whole(1), **_SEED},
    "bayesianoptimization": {
        "base_estimator": _one_of("GP", "RF", "ET", "GBRT"),
        "n_initial_points": _whole(1),  # Katib accepts 0, but skopt can't start with it
        # EIps and PIps need the run time of each trial, which Katib doesn't pass on.
        "acq_func": _one_of("gp_hedge", "LCB", "EI", "PI"),
        "acq_optimizer": _one_of("auto", "sampling", "lbfgs"),
        **_SEED,
    },
    "cmaes": {"sigma": _above(0), "restart_strategy": _one_of("none", "ipop", "bipop"), **_SEED},
    "sobol": {},  # Katib accepts random_state and ignores it
}


# Source: Katib's services (pkg/suggestion/v1beta1), and kubeflow/katib issues 1168 and 1366.
REJECTED_ALGORITHMS = {
    "hyperband": "hyperband stops after its first bracket in Katib (kubeflow/katib#1168); use tpe or random "
    "with more, shorter trials",
    "pbt": "pbt in Katib rejects its own setting resample_probability and loses its state when its pod "
    "restarts; use tpe",
    "enas": "enas searches network architectures, which Sweepbot doesn't; use tpe",
    "darts": "darts searches network architectures, which Sweepbot doesn't; use tpe",
}


def algorithm_schema() -> Schema:
    mappings = (
        {
            "type": "object",
            "properties": {"name": {"const": name}}
            | {key: json_schema(each) for key, each in settings.items()},
            "required": ["name"],
            "additionalProperties": False,
        }
        for name, settings in ALGORITHM_SETTINGS.items()
    )
    return {"title": "name, or mapping", "anyOf": [{"enum": [*ALGORITHMS]}, *mappings]}


def read_algorithm(node: Node | None) -> tuple[str, dict[str, str]]:
    """Return the algorithm's name, `auto` by default, and its settings as Katib takes them."""
    if node is None:
        return ALGORITHMS[0], {}
    keys = node.mapping() if isinstance(node.value, dict) else {"name": node}
    if "name" not in keys:
        node.error("missing key: name")
    name = _name(keys["name"]) if "name" in keys else ""
    if name not in ALGORITHM_SETTINGS:
        return ALGORITHMS[0], {}
    return name, {key: _setting(name, key, each) for key, each in keys.items() if key != "name"}


def _name(node: Node) -> str:
    if why := REJECTED_ALGORITHMS.get(node.raw):
        node.error(why)
        return ""
    return read_node(_one_of(*ALGORITHMS), node) or ""


def _setting(algorithm: str, key: str, node: Node) -> str:
    known = ALGORITHM_SETTINGS[algorithm]
    if key in known:
        return str(read_node(known[key], node))
    if known:
        node.error(f"{algorithm} has no such setting.{did_you_mean(key, known)}")
    elif algorithm == AUTO:
        node.error(f"{AUTO} has no settings; name an algorithm to set {key}")
    else:
        node.error(f"{algorithm} has no settings: it always tries the same points in the same order")
    return ""


def resolve_auto(algorithm: str, *, search_service: bool) -> str:
    """Return the algorithm's name in Katib. `search_service`: whether the installation has it."""
    if algorithm != AUTO:
        return algorithm
    return SEARCH_SERVICE if search_service else FALLBACK


def space_objection(algorithm: str, parameters: tuple[Parameter, ...], settings: dict[str, str]) -> str:
    """Return why the algorithm can't search these parameters together; empty if it can."""
    ranges = sum(not parameter.values for parameter in parameters)
    if algorithm == "cmaes" and ranges < 2:
        return "cmaes needs at least two ranges of numbers; use tpe"
    smooth = ranges and settings.get("base_estimator", "GP") == "GP"
    if settings.get("acq_optimizer") == "lbfgs" and not smooth:
        return "acq_optimizer lbfgs needs base_estimator GP and a range of numbers; use auto"
    return ""


def _off_the_steps(algorithm: str, other: str, p: Parameter) -> str:
    """hyperopt's quniform rounds to multiples of step counted from 0, not from min."""
    if p.min is None or p.max is None or p.step is None:
        return ""
    if is_multiple(p.min, p.step) and is_multiple(p.max, p.step):
        return ""
    return f"{algorithm} samples multiples of step: min and max must be multiples of {p.step}, or use {other}"


def is_multiple(number: float, step: float) -> bool:
    return abs(math.remainder(number, step)) <= 1e-9 * step


def _grid(p: Parameter) -> str:
    if p.log:
        return "grid has no log scale; list the values, for example [1e-4, 1e-3, 1e-2]"
    if not p.values and p.step is None and not p.integer:
        return "grid needs a step here, or a list of values"
    return ""


def _multivariate_tpe(p: Parameter) -> str:
    if p.log and p.min is not None and p.min < 1e-10:
        return "multivariate-tpe samples nothing below 1e-10 on a log scale; use tpe"
    return ""


def _bayesianoptimization(p: Parameter) -> str:
    if p.values:
        return ""
    if not p.integer and not p.log:
        return (
            "bayesianoptimization always searches decimals on a log scale: "
            "set scale: log, a min above 0, and no step, or use tpe"
        )
    if p.integer and p.log:
        return (
            "bayesianoptimization has no log scale for whole numbers; remove scale, list the values, "
            "or use tpe"
        )
    if p.step not in (None, 1):
        return "bayesianoptimization ignores step; list the values, or use tpe"
    return ""


def _cmaes(p: Parameter) -> str:
    if p.values:
        return (
            "cmaes only searches ranges of numbers and would sample these values at random; put one "
            "in command, or use tpe"
        )
    return _as_goptuna_samples("cmaes", p)


def _sobol(p: Parameter) -> str:
    if p.integer:
        return "sobol never tries the max of a range of whole numbers; list the values, or use random"
    return _as_goptuna_samples("sobol", p)


def _as_goptuna_samples(algorithm: str, p: Parameter) -> str:
    if p.log:
        return f"{algorithm} ignores a log scale and would sample uniformly from {p.min} to {p.max}; use tpe"
    if p.step is not None and not is_multiple((p.max or 0) - (p.min or 0), p.step):
        return f"{algorithm} can exceed max unless max - min is a multiple of step ({p.step})"
    return ""


OBJECTIONS: dict[str, Callable[[Parameter], str]] = {
    # As random: a space file must work in an installation without the search service, too.
    AUTO: partial(_off_the_steps, AUTO, "grid"),
    "random": partial(_off_the_steps, "random", "grid"),
    "grid": _grid,
    "tpe": partial(_off_the_steps, "tpe", "multivariate-tpe, which counts from min"),
    "bayesianoptimization": _bayesianoptimization,
    "cmaes": _cmaes,
    "sobol": _sobol,
    "multivariate-tpe": _multivariate_tpe,
}
