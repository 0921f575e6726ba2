"""Optuna's tree-structured Parzen estimator over all parameters together, rebuilt for each request."""

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.study import StudyDirection
from optuna.trial import TrialState

from search.space import Choice, Dimension, Finished, Point, Range, Space

optuna.logging.set_verbosity(optuna.logging.WARNING)


def model_points(
    space: Space, finished: Sequence[Finished], running: Sequence[Point], n: int, seed: int
) -> list[Point]:
    """Return the next `n` points by the model.

    `running` count as poor results, so that points differ. Stopped trials rank behind all that weren't: those
    that got further first, and at the same step by value. With several objectives, trials that no other one
    beats in all of them come first, and stopped ones teach nothing: they have a value of only one.
    """
    sampler = optuna.samplers.TPESampler(multivariate=True, constant_liar=True, n_startup_trials=0, seed=seed)
    up, down = StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE
    directions = [up if each else down for each in (space.maximize, *space.others)]
    study = optuna.create_study(directions=directions, sampler=sampler)
    distributions = {each.name: _distribution(each) for each in space.dimensions}
    known = [each for each in finished if each.stopped_at is None or not space.others]
    told = [(each.point, _result(each)) for each in known]
    told += [(each, {"state": TrialState.RUNNING}) for each in running]
    for point, result in told:  # inactive parameters are missing: the others are modeled together
        own = {name: distributions[name] for name in point}
        study.add_trial(optuna.trial.create_trial(params=point, distributions=own, **result))
    return [_point(space, study.ask(distributions)) for _ in range(n)]


def _result(trial: Finished) -> dict[str, Any]:
    if trial.stopped_at is None:
        return {"state": TrialState.COMPLETE, "values": [trial.value, *trial.others]}
    return {"state": TrialState.PRUNED, "intermediate_values": {trial.stopped_at: trial.value}}


def _point(space: Space, trial: optuna.Trial) -> Point:
    asked = trial.params
    return {
        each.name: each.nearest(asked[each.name]) if isinstance(each, Range) else asked[each.name]
        for each in space.dimensions
    }


def _distribution(dimension: Dimension) -> BaseDistribution:
    if isinstance(dimension, Choice):
        return CategoricalDistribution(tuple(dict.fromkeys(dimension.values)))
    low, top = dimension.low, dimension.top
    if dimension.integer and (not dimension.log or dimension.spacing == 1):
        return IntDistribution(int(low), int(top), log=dimension.log, step=int(dimension.spacing or 1))
    # Optuna has no step on a log scale: `nearest` rounds what it proposes.
    step = None if dimension.log or dimension.step is None else float(dimension.step)
    return FloatDistribution(float(low), float(top), log=dimension.log, step=step)
