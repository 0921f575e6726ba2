"""A search that starts from the best points of an earlier one, beside one that starts cold.

Three small trainings with scikit-learn. The earlier search ran 20 trials of an older version: other rows, and
a smaller network or fewer trees. Misleading history is the same with its ranks reversed: its worst points
come first. One trial at a time, SEEDS searches each; medians over the seeds, with quartiles.
"""

import asyncio
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from statistics import median, quantiles

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from bench.table import Row
from search.ask import ask
from search.space import Choice, Finished, Point, Range, Space

SEEDS, TRIALS, EARLIER, HANDED_OVER = 20, 12, 20, 3
ROWS = 500  # of a data set
THIRD, WORSE = TRIALS // 3, 1.1  # of the trials; times the cold search's best
Train = Callable[[Point, bool], float]


async def run() -> list[Row]:
    return await asyncio.to_thread(_rows)


def _rows() -> list[Row]:
    rows, quick = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a poor setting doesn't converge
        for name, (space, train) in TASKS.items():
            searches = [_searches(space, train, seed) for seed in range(SEEDS)]
            cold, warm, misled = ([each[kind] for each in searches] for kind in range(3))
            goal = median(each[-1] for each in cold)
            reached = next((at + 1 for at in range(TRIALS) if _median(warm, at) <= goal), TRIALS + 1)
            quick += reached <= THIRD
            rows += [_warm_row(name, reached, warm, cold), _misled_row(name, misled, cold)]
    what = "warm start: tasks where a third of the trials reach a cold start's best of 12"
    return [*rows, Row(what=what, against="", measured=f"{quick} of 3", goal="at least 2", met=quick >= 2)]


def _searches(space: Space, train: Train, seed: int) -> tuple[list[float], list[float], list[float]]:
    """Return the best value so far after each trial: cold, warm, and misled."""
    ranked = sorted(_search(space, train, 1000 + seed, EARLIER, old=True), key=lambda each: each.value)
    points = [each.point for each in ranked]
    pasts = ((), points[:HANDED_OVER], points[::-1][:HANDED_OVER])
    found = [_search(space, train, seed, TRIALS, past=past) for past in pasts]
    cold, warm, misled = ([*accumulate((each.value for each in one), min)] for one in found)
    return cold, warm, misled


def _search(
    space: Space, train: Train, seed: int, trials: int, *, past: Sequence[Point] = (), old: bool = False
) -> list[Finished]:
    finished: list[Finished] = []
    for _ in range(trials):
        (point,) = ask(space, finished, [], 1, seed, past=past)
        finished.append(Finished(point=point, value=train(point, old)))
    return finished


def _median(curves: Sequence[Sequence[float]], at: int) -> float:
    return median(each[at] for each in curves)


def _warm_row(
    name: str, reached: int, warm: Sequence[Sequence[float]], cold: Sequence[Sequence[float]]
) -> Row:
    after = f"after {THIRD} trials {quartiles(warm, THIRD)} vs {quartiles(cold, THIRD)}"
    took = f"{reached} of {TRIALS}" if reached <= TRIALS else f"more than {TRIALS}"
    ended = f"after {TRIALS} {quartiles(warm, TRIALS)} vs {quartiles(cold, TRIALS)}"
    return Row(
        what=f"warm start, {name}: trials to a cold start's best of {TRIALS}",
        against="cold start",
        measured=f"{took}; {after}; {ended}",
        ratio=round(_median(warm, THIRD - 1) / _median(cold, THIRD - 1), 3),
        samples={"ours": [each[-1] for each in warm], "theirs": [each[-1] for each in cold]},
    )


def _misled_row(name: str, misled: Sequence[Sequence[float]], cold: Sequence[Sequence[float]]) -> Row:
    ratio = _median(misled, TRIALS - 1) / _median(cold, TRIALS - 1)
    return Row(
        what=f"warm start, {name}: best of {TRIALS} with misleading history",
        against="cold start",
        measured=f"{quartiles(misled, TRIALS)} vs {quartiles(cold, TRIALS)}",
        ratio=round(ratio, 3),
        goal=f"at most {WORSE}x",
        met=ratio <= WORSE,
        samples={"ours": [each[-1] for each in misled], "theirs": [each[-1] for each in cold]},
    )


def quartiles(curves: Sequence[Sequence[float]], trials: int) -> str:
    """Return the median and the quartiles of the best values after so many trials."""
    low, middle, high = quantiles([each[trials - 1] for each in curves], n=4)
    return f"{middle:.4g} ({low:.4g}-{high:.4g})"


@cache
def _rows_of(load: Callable[..., tuple[np.ndarray, np.ndarray]], old: bool) -> list[np.ndarray]:
    """Return rows to train with and to validate, scaled; those of the older version are others."""
    x, y = load(return_X_y=True)
    x, y = x[:ROWS], y[:ROWS]
    new, older, y_new, y_older = train_test_split(
        (x - x.mean(0)) / (x.std(0) + 1e-9), y, test_size=0.5, random_state=0
    )
    return list(train_test_split(*((older, y_older) if old else (new, y_new)), test_size=0.4, random_state=1))


def _digits(point: Point, old: bool) -> float:
    """Return the squared error of a kernel ridge on the ten digits."""
    x, x_val, y, y_val = _rows_of(load_digits, old)
    classes = np.eye(10)
    model = KernelRidge(alpha=point["alpha"], kernel=point["kernel"], gamma=point["gamma"])
    return float(np.mean((model.fit(x, classes[y]).predict(x_val) - classes[y_val]) ** 2))


def _breast_cancer(point: Point, old: bool) -> float:
    """Return the log loss of a network trained by SGD."""
    x, x_val, y, y_val = _rows_of(load_breast_cancer, old)
    width = int(point["width"])
    model = MLPClassifier(
        (width // 2 if old else width,),
        solver="sgd",
        learning_rate_init=point["lr"],
        momentum=point["momentum"],
        alpha=point["decay"],
        max_iter=20 if old else 30,
        random_state=0,
    )
    try:
        chances = np.nan_to_num(model.fit(x, y).predict_proba(x_val), nan=0.5)
    except ValueError:  # it diverged
        return 10.0
    return float(log_loss(y_val, chances, labels=[0, 1]))


def _diabetes(point: Point, old: bool) -> float:
    """Return the squared error of boosted trees, relative to that of the mean."""
    x, x_val, y, y_val = _rows_of(load_diabetes, old)
    model = GradientBoostingRegressor(
        learning_rate=point["lr"],
        n_estimators=int(point["trees"]) // (2 if old else 1),
        max_depth=int(point["depth"]),
        subsample=point["share"],
        min_samples_leaf=int(point["leaf"]),
        random_state=0,
    )
    return float(np.mean((model.fit(x, y).predict(x_val) - y_val) ** 2) / np.var(y_val))


TASKS: dict[str, tuple[Space, Train]] = {
    "digits": (
        Space(
            dimensions=(
                Range(name="alpha", low=1e-4, high=1e2, log=True),
                Range(name="gamma", low=1e-4, high=1.0, log=True),
                Choice(name="kernel", values=("rbf", "laplacian")),
            )
        ),
        _digits,
    ),
    "breast-cancer": (
        Space(
            dimensions=(
                Range(name="lr", low=1e-4, high=1.0, log=True),
                Range(name="momentum", low=0.0, high=0.99),
                Range(name="decay", low=1e-6, high=1.0, log=True),
                Range(name="width", low=4, high=64, integer=True),
            )
        ),
        _breast_cancer,
    ),
    "diabetes": (
        Space(
            dimensions=(
                Range(name="lr", low=1e-3, high=1.0, log=True),
                Range(name="trees", low=10, high=60, integer=True),
                Range(name="depth", low=1, high=8, integer=True),
                Range(name="share", low=0.3, high=1.0),
                Range(name="leaf", low=1, high=40, integer=True),
            )
        ),
        _diabetes,
    ),
}
