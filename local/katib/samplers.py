"""Sample values with optuna, and points of a Sobol sequence.

Where they are drawn from is as in Katib's services; how well is not: tpe is hyperopt's there, cmaes
goptuna's, and bayesianoptimization a Gaussian process of scikit-optimize, which would stop this world for
seconds at each suggestion, so that here it is TPE, too. Of the settings the seed and the numbers of first
trials and of candidates are followed, the others only checked. The same reports give the same values.
"""

from decimal import Decimal
from zlib import crc32

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, CmaEsSampler, TPESampler
from scipy.stats import qmc

from local.katib.algorithm_validation import GOPTUNA, settings_of
from local.katib.progress import objective_value
from local.katib.random_and_grid import rounded
from local.katib.status import is_true
from local.kubernetes.apiserver.kinds import Object

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Study:
    """The search of one Suggestion. Raises ValueError for an unsupported space."""

    def __init__(self, spec: Object, uid: str) -> None:
        self._parameters, self._algorithm = spec["parameters"], spec["algorithm"]["algorithmName"]
        self._space = {one["name"]: _distribution(self._algorithm, one) for one in self._parameters}
        direction = spec["objective"]["type"]
        self._study = optuna.create_study(sampler=_sampler(spec, uid), direction=direction)
        self._untold: dict[str, int] = {}  # optuna's number of each trial

    def tell(self, trials: list[Object]) -> None:
        for trial in trials:
            if (
                is_true(trial, "Succeeded", "EarlyStopped")
                and (name := trial["metadata"]["name"]) in self._untold
            ):
                self._study.tell(self._untold.pop(name), float(objective_value(trial)))

    def ask(self, trial: str) -> dict[str, str]:
        asked = self._study.ask(self._space)
        self._untold[trial] = asked.number
        return {one["name"]: self._written(asked.params[one["name"]], one) for one in self._parameters}

    def _written(self, value: float | str, parameter: Object) -> str:
        if self._algorithm == "tpe" and not isinstance(value, str):
            return rounded(value, parameter)
        return _positional(value) if self._algorithm in GOPTUNA else str(value)


def _positional(value: float | str) -> str:
    """Format as Go does: 0.00001, not 1e-05."""
    return f"{Decimal(str(value)):f}" if isinstance(value, float) else str(value)


def _sampler(spec: Object, uid: str) -> BaseSampler:
    algorithm, settings = spec["algorithm"]["algorithmName"], settings_of(spec)
    seed = int(settings.get("random_state", crc32(uid.encode())))
    if algorithm == "cmaes":
        return CmaEsSampler(seed=seed, warn_independent_sampling=False)
    usual = spec["parallelTrialCount"] if algorithm == "tpe" else 10
    first = settings.get("n_startup_trials", settings.get("n_initial_points", usual))
    candidates = settings.get("n_ei_candidates", settings.get("n_EI_candidates", 24))
    together = algorithm == "multivariate-tpe"
    return TPESampler(
        n_startup_trials=int(first), n_ei_candidates=int(candidates), multivariate=together, seed=seed
    )


def _distribution(algorithm: str, parameter: Object) -> BaseDistribution:
    kind, space = parameter["parameterType"], parameter["feasibleSpace"]
    if kind == "categorical":
        return CategoricalDistribution(space.get("list", []))
    log = space["distribution"] == "logUniform" and algorithm != "cmaes"
    skopt = algorithm == "bayesianoptimization"
    if kind == "int" and algorithm != "tpe":
        step = 1 if log or skopt else int(space.get("step") or 1)
        return IntDistribution(int(space["min"]), int(space["max"]), log=log and not skopt, step=step)
    low, high, step = float(space["min"]), float(space["max"]), space.get("step")
    if skopt and low * high <= 0:
        raise ValueError("search space should not contain 0 when using log-uniform prior")
    exact = step and not log and algorithm in ("cmaes", "multivariate-tpe")
    return FloatDistribution(low, high, log=log or skopt, step=float(step) if exact else None)


def sobol(spec: Object, index: int) -> dict[str, str]:
    """Return goptuna's point, the same in every search; it never samples the largest integer of a range."""
    parameters = sorted(spec["parameters"], key=lambda one: str(one["name"]))
    sequence = qmc.Sobol(len(parameters), scramble=False).fast_forward(index + 1)
    drawn = zip(parameters, sequence.random(1)[0].tolist(), strict=True)
    return {one["name"]: _positional(_at(point, one)) for one, point in drawn}


def _at(point: float, parameter: Object) -> float | str:
    kind, space = parameter["parameterType"], parameter["feasibleSpace"]
    if kind == "categorical":
        return str(space["list"][int(point * len(space["list"]))])
    if kind == "int":
        least, step = int(space["min"]), int(space.get("step") or 1)
        return least + int(point * ((int(space["max"]) - least) // step)) * step
    low, high, q = (float(space.get(key) or 0) for key in ("min", "max", "step"))
    if not q:
        return low + point * (high - low)
    return low + round((point * (high - low + q) - q / 2) / q) * q
