"""Katib's search algorithms: their settings, and what each of them makes of a space. Pure.

Katib takes any space with any of them, and what one can't do it leaves out without a word, or waits for ever
with a space that it can't begin. So what is refused here was read in the source of its services
(pkg/suggestion/v1beta1 in v0.18 and v0.19) and of what they search with: goptuna 0.8, optuna 3.3, hyperopt
0.2.5 and scikit-optimize 0.10.
"""

import math
from collections.abc import Callable

from bot.config.yaml_reader import Node
from bot.core.space import ALGORITHMS, Parameter
from bot.core.wording import did_you_mean

SEEDS = 2**32 - 1  # numpy takes no larger one, which Katib finds out when it is too late to say

_Setting = Callable[[Node], str]  # as Katib takes it: text; complains about what it is not


def _whole(least: int, most: int | None = None) -> _Setting:
    def read(node: Node) -> str:
        before = len(node.complaints)
        number = node.whole()
        if len(node.complaints) == before and number < least:
            node.wrong(f"must be at least {least}, not {number}")
        elif most is not None and number > most:
            node.wrong(f"must be at most {most}, not {number}")
        return str(number)

    return read


def _above(least: float, below: float = math.inf) -> _Setting:
    def read(node: Node) -> str:
        before = len(node.complaints)
        number = node.number()
        if len(node.complaints) == before and not least < number < below:
            end = "" if math.isinf(below) else f" and below {below}"
            node.wrong(f"must be above {least}{end}, not {number}")
        return repr(number)

    return read


def _one_of(*words: str) -> _Setting:
    def read(node: Node) -> str:
        word = node.text()
        if word and word not in words:
            node.wrong(f'"{word}" is unknown.{did_you_mean(word, words)}')
        return word

    return read


_SEED = {"random_state": _whole(0, SEEDS)}
SETTINGS: dict[str, dict[str, _Setting]] = {
    "random": _SEED,
    "grid": _SEED,
    "tpe": {"gamma": _above(0, 1), "prior_weight": _above(0), "n_EI_candidates": _whole(1), **_SEED},
    "multivariate-tpe": {"n_startup_trials": _whole(0), "n_ei_candidates": _whole(1), **_SEED},
    "bayesianoptimization": {
        "base_estimator": _one_of("GP", "RF", "ET", "GBRT"),
        "n_initial_points": _whole(1),  # with 0, which Katib lets pass, skopt can't begin
        # EIps and PIps want the seconds that each trial took, which Katib does not give them.
        "acq_func": _one_of("gp_hedge", "LCB", "EI", "PI"),
        "acq_optimizer": _one_of("auto", "sampling", "lbfgs"),
        **_SEED,
    },
    "cmaes": {"sigma": _above(0), "restart_strategy": _one_of("none", "ipop", "bipop"), **_SEED},
    "sobol": {},  # Katib takes a random_state and drops it
}


def read_algorithm(node: Node | None) -> tuple[str, dict[str, str]]:
    """Its name, `random` when nobody says, and its settings as Katib takes them."""
    if node is None:
        return ALGORITHMS[0], {}
    keys = node.mapping(must=("name",)) if isinstance(node.value, dict) else {"name": node}
    name = _one_of(*ALGORITHMS)(keys["name"]) if "name" in keys else ""
    if name not in SETTINGS:
        return ALGORITHMS[0], {}
    return name, {key: _setting(name, key, each) for key, each in keys.items() if key != "name"}


def _setting(algorithm: str, key: str, node: Node) -> str:
    known = SETTINGS[algorithm]
    if key in known:
        return known[key](node)
    if known:
        node.wrong(f"{algorithm} has no such setting.{did_you_mean(key, known)}")
    else:
        node.wrong(f"{algorithm} has no settings: it always tries the same points in the same order")
    return ""


def objection(algorithm: str, parameter: Parameter) -> str:
    """Why it would not search this parameter as it is written, and what to do; empty when it does."""
    return _OBJECTIONS[algorithm](parameter)


def space_objection(algorithm: str, parameters: tuple[Parameter, ...], settings: dict[str, str]) -> str:
    """The same of all parameters together."""
    ranges = sum(not parameter.values for parameter in parameters)
    if algorithm == "cmaes" and ranges < 2:
        return "cmaes needs at least two ranges of numbers; use tpe"
    smooth = ranges and settings.get("base_estimator", "GP") == "GP"
    if settings.get("acq_optimizer") == "lbfgs" and not smooth:
        return "acq_optimizer lbfgs needs base_estimator GP and a range of numbers; write auto"
    return ""


def _random(p: Parameter) -> str:
    return _off_the_steps("random", p, "grid")


def _tpe(p: Parameter) -> str:
    return _off_the_steps("tpe", p, "multivariate-tpe, which counts from min")


def _off_the_steps(algorithm: str, p: Parameter, other: str) -> str:
    """hyperopt's quniform rounds to multiples of step counted from 0, not from min."""
    if p.min is None or p.max is None or p.step is None:
        return ""
    if _multiple(p.min, p.step) and _multiple(p.max, p.step):
        return ""
    return (
        f"{algorithm} draws multiples of step, so min and max must be multiples of {p.step}; or use {other}"
    )


def _multiple(number: float, step: float) -> bool:
    return abs(math.remainder(number, step)) <= 1e-9 * step


def _grid(p: Parameter) -> str:
    if p.log:
        return "grid has no log scale; list the values, for example [1e-4, 1e-3, 1e-2]"
    if not p.values and p.step is None and not p.integer:
        return "grid needs a step here, or a list of values"
    return ""


def _multivariate_tpe(p: Parameter) -> str:
    if p.log and p.min is not None and p.min < 1e-10:
        return "multivariate-tpe draws nothing below 1e-10 on a log scale; use tpe"
    return ""


def _bayesianoptimization(p: Parameter) -> str:
    if p.values:
        return ""
    if not p.integer and not p.log:
        return (
            "bayesianoptimization searches any range of decimals on a log scale, whatever it is asked: "
            "write scale: log, with a min above 0 and no step, or use tpe"
        )
    if p.integer and p.log:
        return (
            "bayesianoptimization has no log scale for whole numbers; leave scale out, list the values, "
            "or use tpe"
        )
    if p.step not in (None, 1):
        return "bayesianoptimization ignores step; list the values, or use tpe"
    return ""


def _cmaes(p: Parameter) -> str:
    if p.values:
        return (
            "cmaes searches ranges of numbers, and would draw these values at random; put one of them into "
            "command, or use tpe"
        )
    return _as_goptuna_draws("cmaes", p)


def _sobol(p: Parameter) -> str:
    if p.integer:
        return "sobol never tries the max of a range of whole numbers; list the values, or use random"
    return _as_goptuna_draws("sobol", p)


def _as_goptuna_draws(algorithm: str, p: Parameter) -> str:
    if p.log:
        return f"{algorithm} ignores a log scale and would draw evenly from {p.min} to {p.max}; use tpe"
    if p.step is not None and not _multiple((p.max or 0) - (p.min or 0), p.step):
        return f"{algorithm} may go beyond max, unless max - min is a multiple of step ({p.step})"
    return ""


_OBJECTIONS: dict[str, Callable[[Parameter], str]] = {
    "random": _random,
    "grid": _grid,
    "tpe": _tpe,
    "bayesianoptimization": _bayesianoptimization,
    "cmaes": _cmaes,
    "sobol": _sobol,
    "multivariate-tpe": _multivariate_tpe,
}
