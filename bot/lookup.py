"""From a request to an order: which commit is meant, and what its space file says."""

from pathlib import PurePosixPath

from bot.config import Limits, Repository
from bot.git import Git
from bot.hints import did_you_mean
from bot.models import SweepRequest, UserError
from bot.planning import Order, Source
from bot.space import parse_space

FOLDER = "sweeps"


async def look_up(
    git: Git,
    repository: Repository,
    request: SweepRequest,
    limits: Limits,
    *,
    sweep: str,
    owner: str,
    delivery: str,
) -> Order:
    """Raises UserError with what the person can mend, GitUnavailable when the git host does not answer."""
    tip = await git.resolve(repository.url, request.branch)
    commit = tip.commit
    file = f"{FOLDER}/{request.space}.yaml"
    text = await git.read(repository.url, commit, file)
    if text is None:
        raise UserError(await _missing(git, repository, commit, request))
    space = parse_space(text, f"{file}@{commit[:8]}", request, limits)
    subject = await git.subject(repository.url, commit)
    source = Source(repository=repository, ref=tip.ref, commit=commit, subject=subject)
    return Order(sweep=sweep, owner=owner, delivery=delivery, request=request, source=source, space=space)


async def _missing(git: Git, repository: Repository, commit: str, request: SweepRequest) -> str:
    files = [PurePosixPath(name) for name in await git.names(repository.url, commit, FOLDER)]
    spaces = sorted(file.stem for file in files if file.suffix == ".yaml")
    where = (
        f"`{FOLDER}/{request.space}.yaml` is not in {repository.name} at `{request.branch}` ({commit[:8]})"
    )
    if not spaces:
        return f"{where}, nor is any other space file. Add one; `/sweep help` says what it holds."
    there = ", ".join(f"`{name}`" for name in spaces[:10])
    return f"{where}.{did_you_mean(request.space, spaces)} There is {there}."
