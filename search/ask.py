"""Propose the next points of a search by TPE, CMA-ES, Sobol, random, or grid, and Sobol points if the model
fails. Pure: the same request always has the same answer.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from statistics import median

import numpy as np
from cmaes import CMA
from scipy.stats import qmc

from search.model import model_points
from search.space import Choice, Finished, Point, Range, Space

MAX_MODELED = 64  # points of one call from the model, 50 ms each with 1,500 trials; others cover the space
MAX_LEARNED = 2000  # trials that the model learns from; more don't change the answer, only the time
BEST_KEPT = 200  # of these, if there are more: the others are the latest
MAX_DIMENSIONS, MAX_CHOICES = 100, 500  # of a space that the model can learn in the time
SOBOL_POINTS = 2**20  # then the sequence repeats; SciPy's has 2^30

log = logging.getLogger(__name__)


class Method(StrEnum):
    TPE = "tpe"
    CMAES = "cmaes"
    SOBOL = "sobol"
    RANDOM = "random"
    GRID = "grid"


@dataclass(frozen=True, kw_only=True)
class _Request:
    space: Space
    finished: Sequence[Finished]
    running: Sequence[Point]
    n: int
    first: int  # position of the first point asked for, from 0
    startup: int
    seed: int

    @property
    def positions(self) -> range:
        return range(self.first, self.first + self.n)


def ask(
    space: Space,
    finished: Sequence[Finished],
    running: Sequence[Point],
    n: int,
    seed: int,
    *,
    method: Method = Method.TPE,
    first: int | None = None,
    startup: int = 6,
    past: Sequence[Point] = (),
) -> list[Point]:
    """Return the next `n` points.

    Args:
        finished: in the order in which they started.
        running: points without a value yet, which TPE keeps away from.
        seed: of the whole search, equal in all of its calls.
        first: position of the first point in the search, from 0; by default after all trials.
        startup: finished trials before TPE models them; until then, Sobol points.
        past: points of an earlier search, best first, which can lack parameters. They take every other
            position from the first on, until one turns out worse than the median of the search's own. What
            they reached in the earlier search isn't known here: if that misleads, no model recovers.

    Raises:
        ValueError: a grid with a range that has no step.
    """
    position = len(finished) + len(running) if first is None else first
    request = _Request(
        space=space,
        finished=learned(finished, maximize=space.maximize),
        running=running[-MAX_LEARNED:],
        n=n,
        first=position,
        startup=startup,
        seed=seed,
    )
    points = _METHODS[method](request) if n > 0 else []
    tried = () if _misled(space, finished, past) else past
    places = {2 * place: point for place, point in enumerate(tried)}
    return [
        space.active(point | places.get(place, {}))
        for place, point in zip(request.positions, points, strict=True)
    ]


def _misled(space: Space, finished: Sequence[Finished], past: Sequence[Point]) -> bool:
    """Return whether a past point was stopped, or ended worse than the median of the search's own points."""
    sign = -1 if space.maximize else 1
    tried = [each for each in finished if any(space.active(each.point | one) == each.point for one in past)]
    own = [sign * each.value for each in finished if each not in tried and each.stopped_at is None]
    return any(each.stopped_at is not None or (own and sign * each.value > median(own)) for each in tried)


def grid_size(space: Space) -> int:
    """Return the number of combinations. Raises ValueError if a range has no step."""
    return math.prod(_count(each) for each in space.dimensions)


def learned(finished: Sequence[Finished], *, maximize: bool) -> Sequence[Finished]:
    """Return the trials that the model learns from: of many, the best and the latest."""
    if len(finished) <= MAX_LEARNED:
        return finished
    sign = -1 if maximize else 1
    complete = [index for index, each in enumerate(finished) if each.stopped_at is None]
    best = set(sorted(complete, key=lambda index: sign * finished[index].value)[:BEST_KEPT])
    latest = [index for index in range(len(finished)) if index not in best][BEST_KEPT - MAX_LEARNED :]
    return [finished[index] for index in sorted(best | set(latest))]


def derived_seed(*parts: object) -> int:
    """Return a seed of 32 bits that is equal in each process, unlike `hash`."""
    return int.from_bytes(sha256(repr(parts).encode()).digest()[:4], "big")


def _sobol(request: _Request) -> list[Point]:
    sequence = qmc.Sobol(len(request.space.dimensions), rng=np.random.default_rng(request.seed))
    if skipped := request.first % SOBOL_POINTS:
        sequence.fast_forward(skipped)  # SciPy 1.17 overflows with 0
    # One at a time: SciPy warns of any other number that isn't a power of two.
    return [request.space.at(sequence.random(1)[0].tolist()) for _ in request.positions]


def _random(request: _Request) -> list[Point]:
    return [_random_point(request, position) for position in request.positions]


def _random_point(request: _Request, position: int) -> Point:
    drawn = np.random.default_rng([request.seed, position]).random(len(request.space.dimensions))
    return request.space.at(drawn.tolist())


def _grid(request: _Request) -> list[Point]:
    size = grid_size(request.space)
    return [_combination(request.space, position % size) for position in request.positions]


def _combination(space: Space, index: int) -> Point:
    """Return one combination; the last parameter changes first."""
    point: Point = {}
    for each in reversed(space.dimensions):
        index, digit = divmod(index, _count(each))
        point[each.name] = each.values[digit] if isinstance(each, Choice) else each.nth(digit)
    return {each.name: point[each.name] for each in space.dimensions}


def _count(dimension: Range | Choice) -> int:
    return len(dimension.values) if isinstance(dimension, Choice) else dimension.count


def _tpe(request: _Request) -> list[Point]:
    choices = sum(len(each.values) for each in request.space.dimensions if isinstance(each, Choice))
    large = len(request.space.dimensions) > MAX_DIMENSIONS or choices > MAX_CHOICES
    if large or len(request.finished) < max(request.startup, 1):
        return _sobol(request)
    return _modeled(request, _tpe_points)


def _tpe_points(request: _Request) -> list[Point]:
    seed = derived_seed(request.seed, request.first, request.n)
    return model_points(request.space, request.finished, request.running, request.n, seed)


def _cmaes(request: _Request) -> list[Point]:
    searched = [each for each in request.space.ranges if each.top > each.low]
    space = request.space
    # The algorithm needs two, all of them in each trial, and one objective.
    if len(searched) < 2 or len(searched) > MAX_DIMENSIONS or space.is_conditional or space.others:
        return _tpe(request)
    return _modeled(request, _cmaes_points)


def _cmaes_points(request: _Request) -> list[Point]:
    """Repeat the search from its start: each population of finished trials, in order, then ask.

    Lists aren't searched: their values are drawn at random. Stopped trials have no value that compares.
    """
    searched = [each for each in request.space.ranges if each.top > each.low]
    bounds = np.tile([0.0, 1.0], (len(searched), 1))
    seed = derived_seed(request.seed, request.first, request.n)
    search = CMA(mean=np.full(len(searched), 0.5), sigma=0.3, bounds=bounds, seed=seed)
    size, sign = search.population_size, -1 if request.space.maximize else 1
    complete = [each for each in request.finished if each.stopped_at is None]
    told = [(_units(searched, each.point), sign * each.value) for each in complete]
    for start in range(0, len(told) - size + 1, size):
        search.tell(told[start : start + size])
    points = []
    for position in request.positions:
        units = search.ask().tolist()
        found: Point = {each.name: each.at(unit) for each, unit in zip(searched, units, strict=True)}
        points.append(_random_point(request, position) | found)
    return points


def _units(searched: list[Range], point: Point) -> np.ndarray:
    return np.array([each.unit(float(point[each.name])) for each in searched])


def _modeled(request: _Request, points: Callable[[_Request], list[Point]]) -> list[Point]:
    """Return the model's points, up to MAX_MODELED, and Sobol points for the others or if the model fails."""
    modeled = replace(request, n=min(request.n, MAX_MODELED))
    try:
        found = points(modeled)
    except Exception:
        # Any point continues the search, and an error stops it: Katib retries up to 17 minutes later.
        log.exception("model failed, sobol points instead: %d trials", len(request.finished))
        found = []
    rest = replace(request, n=request.n - len(found), first=request.first + len(found))
    return found + (_sobol(rest) if rest.n else [])


_METHODS: dict[Method, Callable[[_Request], list[Point]]] = {
    Method.TPE: _tpe,
    Method.CMAES: _cmaes,
    Method.SOBOL: _sobol,
    Method.RANDOM: _random,
    Method.GRID: _grid,
}
