"""Comparisons of branches (`branch=a,b,c`) with a planted better one, beside sweeps of each branch alone.

Small networks of scikit-learn on the digits: SETTINGS settings with SEEDS seeds each on every branch, all
trained once. The branches differ in the network's width by less than the seeds of one setting often do. Which
one is better is known from all of its trainings; a comparison sees TRAININGS of them, in the search service's
order. `same` is `main` with other seeds, so each claim about the two is wrong.
"""

import asyncio
import math
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier

from bench.table import Row
from bot.core.space import Goal, SearchSpace
from bot.core.space import Pairs as Plan
from bot.sweep.launch.branches import FINALS, shared_settings
from bot.sweep.results.pairs import compared
from search.pairs import Pairs, paired
from search.space import Choice, Finished, Point, Range, Space

SETTINGS, SEEDS, BEST = 48, 10, 12  # of a branch; its level is the mean of its BEST settings
COMPARISONS, TRAININGS, PARALLEL = 200, 60, 4
ALONE = 24  # trainings of one branch's own sweep
TRAINED = 200  # rows
WORST = 5.0  # loss of a network that diverged
WIDTHS = {"main": 12, "wider": 15, "narrow": 11, "same": 12}
Losses = Mapping[str, np.ndarray]  # by branch; a row for each setting, a column for each seed


@dataclass(frozen=True)
class _Trial:
    parameters: dict[str, str]
    value: float


async def run() -> list[Row]:
    return await asyncio.to_thread(_rows)


def _rows() -> list[Row]:
    losses = _losses()
    level = {name: float(np.sort(rows.mean(1))[:BEST].mean()) for name, rows in losses.items()}
    names = ("main", "narrow", "wider")
    claims = [_claim(names, losses, number) for number in range(COMPARISONS)]
    made = [each for each in claims if each]
    right = sum(level[better] < level[other] for better, other in made)
    wrong = [each for number in range(COMPARISONS) if (each := _claim(("main", "same"), losses, number))]
    lucky = fmean(_best_of_sweeps(names, losses, number) == "wider" for number in range(COMPARISONS))
    share = right / len(made) if made else math.nan
    return [
        Row(
            what=f"three branches, one planted better: right claims of {TRAININGS} trainings",
            against="",
            measured=f"{right} of {len(made)} claims ({share:.0%}), from {COMPARISONS} comparisons",
            goal="at least 95%",
            met=share >= 0.95,
        ),
        Row(
            what="two equal branches: comparisons that claim a difference",
            against="",
            measured=f"{len(wrong)} of {COMPARISONS}",
            goal="at most 5%",
            met=len(wrong) <= COMPARISONS * 0.05,
        ),
        Row(
            what=f"the same by the best trial of three sweeps of {ALONE} trainings",
            against="",
            measured=f"{lucky:.0%} name the better branch, and all name one",
        ),
    ]


def _claim(names: tuple[str, ...], losses: Losses, number: int) -> tuple[str, str] | None:
    """Run one comparison. Return the better branch and the other one; None if it claims nothing."""
    count = shared_settings(len(names), TRAININGS)
    space = Space(
        dimensions=(
            Choice(name="branch", values=names),
            Choice(name="setting", values=tuple(map(str, range(SETTINGS)))),
            Range(name="seed", low=0, high=TRAININGS, integer=True),
        )
    )
    pairs = Pairs(branch="branch", seed="seed", settings=count, finals=FINALS)
    draw = random.Random(number)  # noqa: S311 - not for secrets
    seeds = [draw.sample(range(SEEDS), SEEDS) for _ in range(SETTINGS)]
    finished, running = list[Finished](), list[Point]()

    def end(point: Point) -> None:
        setting = int(point["setting"])
        value = losses[str(point["branch"])][setting, seeds[setting][int(point["seed"])]]
        finished.append(Finished(point=point, value=float(value)))

    for position in range(TRAININGS):
        if len(running) == PARALLEL:
            end(running.pop(0))
        running += paired(space, pairs, finished, running, [position], number)
    for point in running:
        end(point)
    texts = [_Trial({name: str(text) for name, text in each.point.items()}, each.value) for each in finished]
    found = compared(_space(names, count), texts)
    return (found.better, found.other) if found and found.is_shown else None


def _space(names: tuple[str, ...], count: int) -> SearchSpace:
    return SearchSpace(
        name="digits",
        command="",
        metric="loss",
        goal=Goal.MINIMIZE,
        max_trials=TRAININGS,
        parallel=PARALLEL,
        max_failed=1,
        parameters=(),
        pairs=Plan(branches=names, seed="seed", settings=count, finals=FINALS),
    )


def _best_of_sweeps(names: Sequence[str], losses: Losses, number: int) -> str:
    """Return the branch of the best trial, of random settings on each branch with a seed of its own."""
    draw = random.Random(number)  # noqa: S311 - not for secrets
    best = {
        name: min(
            losses[name][setting, draw.randrange(SEEDS)] for setting in draw.sample(range(SETTINGS), ALONE)
        )
        for name in names
    }
    return min(best, key=lambda name: float(best[name]))


def _losses() -> Losses:
    draw = np.random.default_rng(0)
    settings = [
        (10 ** draw.uniform(-2.3, 0), 10 ** draw.uniform(-5, 0), draw.uniform(0, 0.95))
        for _ in range(SETTINGS)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a poor setting doesn't converge
        return {
            name: np.array(
                [
                    [_loss(width, *each, seed + 1_000 * (name == "same")) for seed in range(SEEDS)]
                    for each in settings
                ]
            )
            for name, width in WIDTHS.items()
        }


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    inputs, labels = load_digits(return_X_y=True)
    return inputs / 16, labels


def _loss(width: int, rate: float, decay: float, momentum: float, seed: int) -> float:
    inputs, labels = _digits()
    network = MLPClassifier(
        (width,),
        solver="sgd",
        learning_rate_init=rate,
        alpha=decay,
        momentum=momentum,
        batch_size=32,
        max_iter=12,
        random_state=seed,
    )
    try:
        network.fit(inputs[:TRAINED], labels[:TRAINED])
    except ValueError:  # the network's weights aren't finite any more
        return WORST
    chances = np.clip(np.nan_to_num(network.predict_proba(inputs[TRAINED:800]), nan=0.1), 1e-7, 1)
    return min(float(log_loss(labels[TRAINED:800], chances, labels=range(10))), WORST)
