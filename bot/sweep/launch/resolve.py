"""Resolve a request to an order: its commit, its space (also of `seeds=`), its gate, and its build's files;
refuse a missing space file or a force-pushed branch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.request import SweepRequest
from bot.core.seeds import parse_seeds
from bot.core.space import FOLDER, SEARCH_SERVICE, Goal, Parameter, SearchSpace
from bot.platform.config.permissions import queue_member
from bot.platform.config.policy import Config, prebuilt_image
from bot.platform.config.repositories import Repository
from bot.platform.config.yaml_reader import MAX_CHARACTERS
from bot.platform.repos import submodules
from bot.platform.repos.git import Git, Tip, named_branches
from bot.platform.runtime.parser_thread import run_in_parser_thread
from bot.sweep.builds.jobs import Source
from bot.sweep.builds.source_files import candidates, source_files
from bot.sweep.launch.branches import with_branches
from bot.sweep.launch.plan import Order
from bot.sweep.launch.pods import nodes_of, pods_of, with_output
from bot.sweep.launch.queueing import check_claims, one_at_a_time, queueing, with_priority
from bot.sweep.spaces.algorithms import resolve_auto
from bot.sweep.spaces.metrics import metric_objection, read_source
from bot.sweep.spaces.space import INLINE, parse_space
from bot.sweep.spaces.trials import DEFAULT_PARALLEL
from bot.text.wording import did_you_mean


async def look_up(
    git: Git,
    repository: Repository,
    request: SweepRequest,
    config: Config,
    *,
    sweep: str,
    owner: str,
    request_id: str,
) -> Order:
    """Raise UserError for what the user can fix, GitUnavailableError if the git host doesn't respond."""
    branches = await named_branches(git, repository.url, request.branch)
    tips = [await _pinned(git, repository, *each, request) for each in _pins(request, branches)]
    commit = tips[0].commit
    await git.prefetch(repository.url, commit, (_space_file(request), *candidates(repository)))
    place = queueing(request, queue_member(owner, config), config)
    space = await _space(git, repository, commit, request, config)
    space = with_branches(space, request, config) if branches[1:] else space
    nodes = nodes_of(request, space, config)
    space = one_at_a_time(space, nodes, request, place)
    gate, max_hours = is_gated(request, space, config), request.max_hours or space.max_hours
    space = replace(space, gate=gate, max_hours=max_hours, budget=request.budget or space.budget)
    space = with_output(space, sweep, config)
    pods = pods_of(request, space, owner, config)
    check_claims(pods.shape.resource if request.gpus else "", place)
    if space.image:
        prebuilt_image(space.image, config, in_file=not request.image)
    if len({each.commit for each in tips}) < len(tips):
        raise UserError(f"branch={request.branch}: two of them are at the same commit.", field="branch")
    source, *compared = [await _source(git, repository, each, built=not space.image) for each in tips]
    return Order(
        sweep=sweep,
        owner=owner,
        request_id=request_id,
        request=replace(request, nodes=nodes),
        source=source,
        others=tuple(compared),
        space=space,
        profile=pods.profile.name if pods.profile else "",
        shape=with_priority(pods.shape, place),
        secrets=pods.secrets,
        queueing=place,
    )


def is_gated(request: SweepRequest, space: SearchSpace, config: Config) -> bool:
    """Return whether one trial runs first. Every supported algorithm can continue with more trials."""
    gate = config.gate and space.parallel > 1 if request.gate is None else request.gate
    return gate and space.max_trials > 1


def _pins(request: SweepRequest, branches: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each branch with the commit to run; "" for its latest."""
    pins = request.commit.split(",") if request.commit else [""] * len(branches)
    if len(pins) != len(branches):  # the preview was of other branches
        pins = [""] * len(branches)
    return zip(branches, pins, strict=True)


async def _pinned(git: Git, repository: Repository, branch: str, commit: str, request: SweepRequest) -> Tip:
    """Return the branch at the commit that was shown, or at its latest one. Raises UserError."""
    try:
        tip = await git.resolve(repository.url, branch)
    except UserError as error:  # people know the repository by its name
        raise UserError(str(error).replace(repository.url, repository.name), field=error.field) from None
    if commit in {"", tip.commit}:
        return tip
    if not await git.contains(repository.url, tip, commit):
        since = f"`{request.promotes.sweep}` ran" if request.promotes else "the preview"
        fix = "Run the search again" if request.promotes else "Open the form again to review the new commit"
        raise UserError(
            f"branch={branch} was force-pushed after {since} and no longer contains {commit[:8]}. {fix}.",
            field="branch",
        )
    return replace(tip, commit=commit)


async def _source(git: Git, repository: Repository, tip: Tip, *, built: bool) -> Source:
    subject = await git.subject(repository.url, tip.commit)
    files = await source_files(git, repository, tip.commit) if built else {}
    if repository.secret and submodules.GITMODULES in files:
        await submodules.check(git, repository, tip.commit, files[submodules.GITMODULES])
    return Source(repository=repository, ref=tip.ref, commit=tip.commit, subject=subject, files=files)


def _space_file(request: SweepRequest) -> str:
    return f"{FOLDER}/{request.space}.yaml"


async def _space(
    git: Git, repository: Repository, commit: str, request: SweepRequest, config: Config
) -> SearchSpace:
    if request.seeds is not None:
        return seed_space(request, config)
    if request.text is not None:
        return await _parsed(request.text, INLINE, request, config)
    file = _space_file(request)
    text = await git.read(repository.url, commit, file, MAX_CHARACTERS * 4)
    if text is None:
        raise UserError(await _missing(git, repository, commit, request), field="space")
    return await _parsed(text, f"{file}@{commit[:8]}", request, config)


async def _parsed(text: str, file: str, request: SweepRequest, config: Config) -> SearchSpace:
    try:
        space = await run_in_parser_thread(parse_space, text, file, request, config.limits)
    except UserError as error:
        raise UserError(str(error), field=error.field or "space") from None
    space = replace(space, algorithm=resolve_auto(space.algorithm, search_service=config.search_service))
    what = "`if:`" if any(each.when for each in space.parameters) else "a list of objectives"
    if space.algorithm != SEARCH_SERVICE and (space.goals or what == "`if:`"):
        why = f"{what} needs Sweepbot's search service; this sweep's algorithm is {space.algorithm}"
        raise UserError(f"{why}. Remove {what}, or leave out the algorithm.", field="space")
    return space


async def _missing(git: Git, repository: Repository, commit: str, request: SweepRequest) -> str:
    files = [PurePosixPath(name) for name in await git.names(repository.url, commit, FOLDER)]
    spaces = sorted(file.stem for file in files if file.suffix == ".yaml")
    where = f"`{FOLDER}/{request.space}.yaml` isn't in {repository.name} at `{request.branch}` ({commit[:8]})"
    if not spaces:
        return f"{where}, and neither is any other space file. Add one; the `/sweep` form has an example."
    return f"{where}.{did_you_mean(request.space, spaces)}"


def seed_space(request: SweepRequest, config: Config) -> SearchSpace:
    """Return a grid of the seeds. A failed seed stops no other one. Raises UserError."""
    limits, defaults, search = config.limits, config.seeds, request.promotes
    seeds = parse_seeds(request.seeds or "", limits.trials)
    parallel = request.parallel or DEFAULT_PARALLEL
    source, path = read_source(None, request)
    metric = request.metric or defaults.metric
    if why := metric_objection(metric, source):
        raise UserError(why, field="metric")
    return SearchSpace(
        name=request.space,
        command=request.cmd or "",
        metric=metric,
        goal=Goal(request.goal or defaults.goal),
        algorithm="grid",
        max_trials=len(seeds),
        parallel=min(parallel, limits.parallel, len(seeds)),
        auto=request.auto,
        max_failed=len(seeds),
        trial_hours=limits.trial_hours,
        parameters=(Parameter(name=defaults.parameter, values=tuple(map(str, seeds))),),
        image=request.image or "",
        source=source,
        metrics_path=path,
        flags=FlagStyle(request.flags or FlagStyle.DOTS),
        strategy=search.strategy if search else {},
        volumes=search.volumes if search else (),
        env=search.env if search else {},
        secrets=search.secrets if search else (),
        output_flag=search.output_flag if search else "",
        seed=defaults.parameter,
    )
