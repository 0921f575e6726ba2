"""Compare branches of code (`branch=a,b,c`): what the trials run, and what such a sweep can't do. Pure."""

import re
from dataclasses import replace

from bot.core.errors import UserError
from bot.core.request import SweepRequest
from bot.core.space import BRANCH, SEARCH_SERVICE, Pairs, Parameter, SearchSpace
from bot.platform.config.policy import Config
from bot.sweep.results.warm_start import NONE

FINALS = 5  # settings: more of them show more than more seeds of a few
MIN_TRIALS, USUAL_TRIALS = 32, 60
FINALISTS = 2
LABEL = 60  # characters
WAVES = 8  # at least: what a few trials chose decides what the next ones run


def with_branches(space: SearchSpace, request: SweepRequest, config: Config) -> SearchSpace:
    """Return the space whose trials compare the branches; of one, as it is. Raises UserError."""
    if len(request.branches) < FINALISTS:
        return space
    typed = f"branch={request.branch}"
    if why := _objection(space, request, config):
        raise UserError(f"{typed} {why}", field=BRANCH)
    labels = tuple(map(label, request.branches))
    if len({*labels}) < len(labels):
        raise UserError(
            f"{typed}: the names must differ in their first {LABEL} characters, and in more than signs such "
            "as /.",
            field=BRANCH,
        )
    total, seed = space.max_trials, config.seeds.parameter
    pairs = Pairs(branches=labels, seed=seed, settings=shared_settings(len(labels), total), finals=FINALS)
    seeds = Parameter(name=seed, min=0, max=total, integer=True)
    off = [
        "Early stopping" if space.stopping or space.early_stopping is not None else "",
        "The target" if space.target is not None else "",
    ]
    notes = [
        f"{each} is off: branches are compared by whole trainings, and by all of them" for each in off if each
    ]
    if space.parallel > (parallel := min(space.parallel, total // WAVES)):
        notes.append(
            f"{parallel} trials run in parallel: what the first ones show decides what the next ones run"
        )
    return replace(
        space,
        pairs=pairs,
        parameters=(Parameter(name=BRANCH, values=labels), *space.parameters, seeds),
        fixed={name: value for name, value in space.fixed.items() if name != seed},
        parallel=parallel,
        stopping=None,
        early_stopping=None,
        target=None,
        extendable=False,
        notes=(*space.notes, *notes),
    )


def label(branch: str) -> str:
    """Return how trials name the branch: as a tag of an image, where Katib puts it."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", branch)[:LABEL].lstrip(".-") or "branch"


def shared_settings(branches: int, trials: int) -> int:
    """Return how many settings the branches share: the finals get half of the trials."""
    shared = trials - FINALISTS * (trials // (2 * FINALISTS))
    if branches == FINALISTS:
        return shared // FINALISTS
    return max(count for count in range(shared) if _screened(branches, count) <= shared)


def _screened(branches: int, settings: int) -> int:
    """Return the trials of the shared settings: from half of them on, two branches are left."""
    first = -(-settings // 2)
    return first * branches + (settings - first) * FINALISTS


def _objection(space: SearchSpace, request: SweepRequest, config: Config) -> str:
    """Return why the space can't compare branches, and the fix; "" if it can."""
    seed, names = config.seeds.parameter, {each.name for each in space.parameters}
    if space.algorithm != SEARCH_SERVICE:
        why = f"needs Sweepbot's search service; this sweep's algorithm is {space.algorithm}."
        if config.search_service:
            return f"{why} Leave out the algorithm."
        return f"{why} *Fix:* Ask an admin to install it and set `search_service: true`, or name one branch."
    if request.from_ not in {None, NONE}:
        return "draws its own settings, the same for each branch. Remove from=, or name one branch."
    if space.image:
        return "builds an image for each branch. Remove image=, or name one branch."
    if space.goals:
        return "is compared by one metric. Name one objective in the space file."
    if taken := sorted({BRANCH, seed} & names) or [*({BRANCH} & space.fixed.keys())]:
        return (
            f"sets {taken[0]} itself, and the space file has a parameter of that name. Remove it there, or "
            "name one branch."
        )
    if space.max_trials < MIN_TRIALS:
        return (
            f"needs at least {MIN_TRIALS} trials, because half of them are pairs; this sweep has "
            f"{space.max_trials}. Set trials={USUAL_TRIALS}, or name one branch."
        )
    return ""
