"""From a request to an order: which commit is meant, what its space file says, what it is built from."""

from pathlib import PurePosixPath

from bot.builds.jobs import Source
from bot.builds.source_files import source_files
from bot.config.policy import Config, Repository, ready_image
from bot.config.yaml_reader import MAX_CHARACTERS
from bot.core.errors import UserError
from bot.core.request import SweepRequest
from bot.core.space import FOLDER, SearchSpace
from bot.core.wording import did_you_mean
from bot.launch.plan import Order
from bot.launch.space import WRITTEN, parse_space
from bot.repos import submodules
from bot.repos.git import Git, Tip
from bot.runtime.parser_thread import aside


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
    """Raises UserError with what the person can mend, GitUnavailable when the git host does not answer."""
    tip = await _tip(git, repository, request.branch)
    commit = request.commit or tip.commit
    if commit != tip.commit and not await git.contains(repository.url, tip, commit):
        raise UserError(
            f"branch={request.branch} was rewritten since its preview: {commit[:8]} is no longer in it. "
            "Open the form again and look at what is there now."
        )
    space = await _space(git, repository, commit, request, config)
    subject = await git.subject(repository.url, commit)
    if space.image:
        ready_image(space.image, config)
    files = {} if space.image else await source_files(git, repository, commit)
    if repository.secret and submodules.FILE in files:
        await submodules.check(git, repository, commit, files[submodules.FILE])
    source = Source(repository=repository, ref=tip.ref, commit=commit, subject=subject, files=files)
    return Order(
        sweep=sweep,
        owner=owner,
        request_id=request_id,
        request=request,
        source=source,
        space=space,
        shape=config.trials,
    )


async def _tip(git: Git, repository: Repository, branch: str) -> Tip:
    try:
        return await git.resolve(repository.url, branch)
    except UserError as error:  # people know it by its name
        raise UserError(str(error).replace(repository.url, repository.name)) from None


async def _space(
    git: Git, repository: Repository, commit: str, request: SweepRequest, config: Config
) -> SearchSpace:
    if request.text is not None:
        return await aside(parse_space, request.text, WRITTEN, request, config.limits)
    file = f"{FOLDER}/{request.space}.yaml"
    text = await git.read(repository.url, commit, file, MAX_CHARACTERS * 4)
    if text is None:
        raise UserError(await _missing(git, repository, commit, request))
    return await aside(parse_space, text, f"{file}@{commit[:8]}", request, config.limits)


async def _missing(git: Git, repository: Repository, commit: str, request: SweepRequest) -> str:
    files = [PurePosixPath(name) for name in await git.names(repository.url, commit, FOLDER)]
    spaces = sorted(file.stem for file in files if file.suffix == ".yaml")
    where = (
        f"`{FOLDER}/{request.space}.yaml` is not in {repository.name} at `{request.branch}` ({commit[:8]})"
    )
    if not spaces:
        return f"{where}, nor is any other space file. Add one: the form of `/sweep` shows what it holds."
    return f"{where}.{did_you_mean(request.space, spaces)}"
