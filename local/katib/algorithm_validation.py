"""ValidateAlgorithmSettings: how algorithm services validate an experiment before their first suggestion.

With their words, spelling, and gaps: grid rejects a negative seed without a message, and goptuna's service
(cmaes, sobol) checks no settings; an invalid seed of cmaes then fails every suggestion.
"""

import math
from collections.abc import Callable, Iterator

from local.katib.random_and_grid import points
from local.kubernetes.apiserver.kinds import Object

Rule = tuple[Callable[[str], bool], str]
ALGORITHMS = ("random", "grid", "tpe", "bayesianoptimization", "cmaes", "sobol", "multivariate-tpe")
GOPTUNA = ("cmaes", "sobol")
CMAES = "CMA-ES only supports two or more dimensional continuous search space."


def _whole(text: str) -> bool:
    return int(text) >= 0


def _positive(text: str) -> bool:
    return int(text) > 0


def _words(*known: str) -> Rule:
    return known.__contains__, "{name} {value} is not supported in Bayesian optimization"


HYPEROPT: dict[str, Rule] = {"random_state": (_whole, "random_state should be great or equal than zero")}
OPTUNA: Rule = (_whole, "{name} should be greate or equal than zero")
RULES: dict[str, dict[str, Rule]] = {
    "random": HYPEROPT,
    "grid": {"random_state": (_whole, "")},
    "tpe": HYPEROPT
    | {
        "gamma": (lambda text: 1 > float(text) > 0, "gamma should be in the range of (0, 1)"),
        "prior_weight": (lambda text: float(text) > 0, "prior_weight should be great than zero"),
        "n_EI_candidates": (_positive, "n_EI_candidates should be great than zero"),
    },
    "multivariate-tpe": dict.fromkeys(("n_startup_trials", "n_ei_candidates", "random_state"), OPTUNA),
    "bayesianoptimization": HYPEROPT
    | {
        "base_estimator": _words("GP", "RF", "ET", "GBRT"),
        "n_initial_points": (_whole, "n_initial_points should be great or equal than zero"),
        "acq_func": _words("gp_hedge", "LCB", "EI", "PI", "EIps", "PIps"),
        "acq_optimizer": _words("auto", "sampling", "lbfgs"),
    },
}


def settings_of(spec: Object) -> dict[str, str]:
    return {one["name"]: one["value"] for one in spec["algorithm"].get("algorithmSettings", [])}


def objection(spec: Object) -> str | None:
    """Return why the service rejects the experiment, which can be an empty message; None if it doesn't."""
    return next(_objections(spec), None)


def _objections(spec: Object) -> Iterator[str]:
    algorithm = spec["algorithm"]["algorithmName"]
    for name, value in settings_of(spec).items() if algorithm in RULES else ():
        if name not in RULES[algorithm]:
            yield f"unknown setting {name} for algorithm {algorithm}"
            return
        holds, text = RULES[algorithm][name]
        try:
            if not holds(value):
                yield text.format(name=name, value=value)
        except ValueError as error:
            yield f"failed to validate {name}({value}): {error}"
    if (
        algorithm == "cmaes"
        and sum(one["parameterType"] in ("double", "int") for one in spec["parameters"]) < 2
    ):
        yield CMAES
    if algorithm == "grid":
        yield from _grid_objections(spec)


def _grid_objections(spec: Object) -> Iterator[str]:
    try:
        count = math.prod(len(points(one)) for one in spec["parameters"])
    except ValueError as error:
        yield f"failed to validate parameters({[one['name'] for one in spec['parameters']]}): {error}"
        return
    if (most := spec.get("maxTrialCount", 0)) > count:
        yield f"Max Trial Count: {most} > all possible search combinations: {count}"
