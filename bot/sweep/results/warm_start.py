"""Find the earlier sweep whose best points a new search tries first (`from=`), or say why it can't be used.

Only the points are handed over, best first: the values of another commit, or of other data, don't compare.
GPUs, image, and data of the two sweeps aren't compared.
"""

from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace

from bot.core.errors import UserError
from bot.core.request import SweepRequest
from bot.core.space import SEARCH_SERVICE, Parameter, SearchSpace, WarmStart
from bot.platform.slack.mrkdwn import code, plain
from bot.sweep.results.models import SweepResults
from bot.sweep.results.ranking import ranked
from bot.sweep.results.store import ResultsStore
from bot.sweep.spaces.algorithms import is_multiple
from bot.text.number_format import finite
from bot.text.wording import counted
from k8s.engine import TrialState

AUTO, NONE = "auto", "none"
MAX_POINTS = 3
SHARE = 3  # at most every third trial takes such a point
LEAST_TRIALS = 8  # with a result, of a sweep that `auto` chooses
APART = 0.1  # of a range: closer points are one


async def with_past(
    space: SearchSpace, request: SweepRequest, repo_url: str, kept: ResultsStore
) -> SearchSpace:
    """Return the space with the points that `from=` asks for.

    Raises UserError if the named sweep can't be used, ApiError, UnreachableError.
    """
    wanted = request.from_ or NONE
    if wanted == NONE:
        return space
    if space.algorithm != SEARCH_SERVICE:
        why = f"from= needs Sweepbot's search service; this sweep's algorithm is {space.algorithm}"
        raise UserError(f"{why}. Remove from=, or leave out the algorithm.", field="from")
    if wanted == AUTO:
        return replace(space, warm_start=await _best_of_space(space, request.branch, repo_url, kept))
    try:
        results = await kept.get(wanted)
    except ValueError as error:
        raise UserError(f"from={wanted}: its results can't be read: {error}.", field="from") from None
    if results is None:
        raise UserError(f"from={wanted}: no ended sweep of this name has results.", field="from")
    if why := _denial(space, repo_url, results):
        raise UserError(f"from={wanted} doesn't compare with this sweep: {why}.", field="from")
    return replace(space, warm_start=_warm_start(space, results))


async def _best_of_space(space: SearchSpace, branch: str, repo_url: str, kept: ResultsStore) -> WarmStart:
    """Return the start from the sweep with the most parameters in common, of the same branch, the latest."""
    best: tuple[int, bool, float] | None = None
    found = WarmStart()
    async with aclosing(kept.of_space(space.name)) as sweeps:
        async for results in sweeps:
            if _denial(space, repo_url, results) or len(_finished(results)) < LEAST_TRIALS:
                continue
            rank = len(_common(space, results)), results.branch == branch, results.ended.timestamp()
            if best is None or rank > best:
                best, found = rank, _warm_start(space, results)
    return found


def _denial(space: SearchSpace, repo_url: str, results: SweepResults) -> str:
    """Return why the sweep doesn't compare with the space; "" if it does."""
    theirs, ours = results.space, space
    if results.repo_url != repo_url:
        return "it ran another repository"
    if theirs.seed:
        return "it ran seeds, not a search"
    objectives = [(each.metric, each.goal, each.strategies[each.metric]) for each in (theirs, ours)]
    if objectives[0] != objectives[1]:
        return f"its objective is to {theirs.goal} {theirs.metric} ({objectives[0][2]})"
    if not next(_points(space, results), None):
        return "none of its finished trials is in this space"
    return ""


def _warm_start(space: SearchSpace, results: SweepResults) -> WarmStart:
    points: list[dict[str, str]] = []
    for point in _points(space, results):
        if len(points) == max(1, min(MAX_POINTS, space.max_trials // SHARE)):
            break
        if all(_apart(space, point, each) for each in points):
            points.append(point)
    common = f"{len(_common(space, results))} of {counted(len(space.parameters), 'parameter')} in common"
    why = f"{results.branch} @ {results.commit[:8]}, {results.ended:%Y-%m-%d}, {common}"
    return WarmStart(sweep=results.sweep, points=tuple(points), why=why)


def described(start: WarmStart) -> str:
    """Return the source of the points, in mrkdwn."""
    if not start.points:
        return f"no comparable earlier sweep of this space has {LEAST_TRIALS} results"
    return f"{best_points(start)} of {code(start.sweep)} ({plain(start.why)})"


def best_points(start: WarmStart) -> str:
    return "the best point" if len(start.points) == 1 else f"the {counted(len(start.points), 'best point')}"


def _common(space: SearchSpace, results: SweepResults) -> set[str]:
    known = {*results.space.fixed, *(each.name for each in results.space.parameters)}
    return known & {each.name for each in space.parameters}


def _finished(results: SweepResults) -> list[dict[str, str]]:
    """Return the values of the trials with a result, best first."""
    done = [each for each in results.trials if each.state is TrialState.SUCCEEDED and each.value is not None]
    fixed = results.space.fixed
    return [fixed | each.parameters for each in ranked(results.space.goal, done, results.best)]


def _points(space: SearchSpace, results: SweepResults) -> Iterator[dict[str, str]]:
    """Yield the points that are in the space, best first; a value outside isn't moved into it."""
    for values in _finished(results):
        known = [each for each in space.parameters if each.name in values]
        if known and all(_contains(each, values[each.name]) for each in known):
            yield {each.name: values[each.name] for each in known}


def _contains(parameter: Parameter, text: str) -> bool:
    if parameter.values:
        return text in parameter.values
    number = finite(text)
    low, high = parameter.min or 0, parameter.max or 0
    step = parameter.step or (1 if parameter.integer else None)
    if number is None or not low <= number <= high:
        return False
    return step is None or is_multiple(number - low, step)


def _apart(space: SearchSpace, one: dict[str, str], other: dict[str, str]) -> bool:
    """Return whether the points differ in a choice, or by at least a tenth of a range."""
    for each in space.parameters:
        if each.name not in one:
            continue
        a, b = one[each.name], other.get(each.name)
        if b is None or (each.values and a != b):
            return True
        if not each.values and abs(each.unit(float(a)) - each.unit(float(b))) >= APART:
            return True
    return False
