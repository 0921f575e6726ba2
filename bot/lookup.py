"""From a request to an order: which commit is meant, what its space file says, what it is built from."""

import contextlib
from pathlib import PurePosixPath

from bot import pins, submodules
from bot.aside import aside
from bot.builds import Source
from bot.config import Config, Repository, ready_image
from bot.dockerfile import split
from bot.document import MAX_CHARACTERS
from bot.git import MIB, MOST_FILE, Git, Tip
from bot.hints import did_you_mean
from bot.models import SearchSpace, SweepRequest, UserError
from bot.planning import Order
from bot.recipes import BUILT_FROM
from bot.space import WRITTEN, parse_space

FOLDER = "sweeps"
REQUIREMENTS = "requirements.txt"
MOST_LOCK = 4 * MIB  # bytes: a uv.lock of a thousand packages has two
MOST_READ = 30  # files that decide how it is built


async def look_up(
    git: Git,
    repository: Repository,
    request: SweepRequest,
    config: Config,
    *,
    sweep: str,
    owner: str,
    delivery: str,
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
    files = {} if space.image else await _files(git, repository, commit)
    if repository.secret and submodules.FILE in files:
        await submodules.check(git, repository, commit, files[submodules.FILE])
    source = Source(repository=repository, ref=tip.ref, commit=commit, subject=subject, files=files)
    return Order(
        sweep=sweep,
        owner=owner,
        delivery=delivery,
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


async def _files(git: Git, repository: Repository, commit: str) -> dict[str, str]:
    """Those that decide how it is built: of BUILT_FROM, and after these the requirements."""
    dockerfile = repository.dockerfile or "Dockerfile"
    files = await _read(git, repository, commit, dockerfile, ".gitmodules")
    if dockerfile in files:
        return files | await _below_code(git, repository, commit, dockerfile, files[dockerfile])
    if repository.dockerfile:
        raise UserError(f"`{dockerfile}`, which the configuration names, is not in {repository.name}.")
    files = await _read(git, repository, commit, *BUILT_FROM)
    if "uv.lock" not in files and (first := await _requirements(git, repository, commit)):
        files |= await _with_pointers(git, repository, commit, first)
    return files


async def _below_code(
    git: Git, repository: Repository, commit: str, dockerfile: str, text: str
) -> dict[str, str]:
    """What a Dockerfile that can be split takes from the repository before the code; no file of bytes."""
    parts = await aside(split, text)
    if parts is None or len(parts.sources) > MOST_READ:
        return {}
    files = await _read(git, repository, commit, f"{dockerfile}.dockerignore", ".dockerignore")
    with contextlib.suppress(UserError):
        files |= await _read(git, repository, commit, *parts.sources)
    return files


async def _read(git: Git, repository: Repository, commit: str, *paths: str) -> dict[str, str]:
    found = {
        path: await git.read(repository.url, commit, path, MOST_LOCK if path == "uv.lock" else MOST_FILE)
        for path in paths
    }
    return {path: text for path, text in found.items() if text is not None}


async def _requirements(git: Git, repository: Repository, commit: str) -> str | None:
    if repository.requirements:
        return repository.requirements
    names = await git.names(repository.url, commit, "")
    found = [name for name in names if PurePosixPath(name).match("requirements*.txt")]
    if REQUIREMENTS in found or not found:
        return REQUIREMENTS if found else None
    if len(found) > 1:
        many = ", ".join(f"`{name}`" for name in found)
        raise UserError(
            f"{repository.name} has {many} and no `{REQUIREMENTS}`. Name the one for trainings so, or have "
            "an administrator set `requirements:` of the repository in the configuration."
        )
    return found[0]


async def _with_pointers(git: Git, repository: Repository, commit: str, first: str) -> dict[str, str]:
    """A requirements file and those that it names, and those that they name; the first stays first."""
    found: dict[str, str] = {}
    waiting = [first]
    while waiting:
        path = waiting.pop(0)
        if path in found:
            continue
        text = await git.read(repository.url, commit, path)
        if text is None:
            raise UserError(f"`{path}`, which is needed to install {repository.name}, is not in it.")
        found[path] = text
        if len(found) > MOST_READ:
            raise UserError(
                f"`{first}` of {repository.name} leads to more than {MOST_READ} files by -r and -c."
            )
        waiting += await aside(pins.pointers, path, text)
    return found
