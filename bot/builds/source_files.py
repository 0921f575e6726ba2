"""The files of a commit that decide how its image is built."""

import contextlib
from pathlib import PurePosixPath

from bot.builds.dockerfile_split import split
from bot.builds.recipes import BUILT_FROM
from bot.builds.requirements import references
from bot.config.policy import Repository
from bot.core.errors import UserError
from bot.repos.git import MIB, MOST_FILE, Git
from bot.runtime.parser_thread import aside

REQUIREMENTS = "requirements.txt"
MOST_LOCK = 4 * MIB  # bytes: a uv.lock of a thousand packages has two
MOST_READ = 30  # files that decide how it is built


async def source_files(git: Git, repository: Repository, commit: str) -> dict[str, str]:
    """Return the files that decide how the image is built, the requirements last. Raises UserError."""
    dockerfile = repository.dockerfile or "Dockerfile"
    files = await _read(git, repository, commit, dockerfile, ".gitmodules")
    if dockerfile in files:
        return files | await _below_code(git, repository, commit, dockerfile, files[dockerfile])
    if repository.dockerfile:
        raise UserError(f"{repository.name} has no `{dockerfile}`, the `dockerfile:` of the configuration.")
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
            raise UserError(f"{repository.name} has no `{path}`, which its requirements name.")
        found[path] = text
        if len(found) > MOST_READ:
            raise UserError(
                f"`{first}` of {repository.name} can include at most {MOST_READ} files with -r and -c."
            )
        waiting += await aside(references, path, text)
    return found
