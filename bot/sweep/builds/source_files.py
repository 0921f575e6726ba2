"""Read the files of a commit that decide how its image is built; refuse a missing Dockerfile, several
requirements files without a requirements.txt, or too many included ones.
"""

import contextlib
from pathlib import PurePosixPath

from bot.core.errors import UserError
from bot.platform.config.repositories import Repository
from bot.platform.repos.git import MAX_FILE, Git
from bot.platform.repos.git_commands import MIB
from bot.platform.runtime.parser_thread import run_in_parser_thread
from bot.sweep.builds.dockerfile_split import split
from bot.sweep.builds.recipes import BUILT_FROM
from bot.sweep.builds.requirements import references
from bot.text.wording import listed

DOCKERFILE, REQUIREMENTS = "Dockerfile", "requirements.txt"
MAX_LOCKFILE = 4 * MIB  # bytes: a uv.lock of 1,000 packages has 2 MiB
MAX_FILES = 30  # files


def candidates(repository: Repository) -> tuple[str, ...]:
    """Return the paths that `source_files` reads if the commit has them."""
    dockerfile = repository.dockerfile or DOCKERFILE
    requirements = repository.requirements or REQUIREMENTS
    return (dockerfile, f"{dockerfile}.dockerignore", *BUILT_FROM, requirements)


async def source_files(git: Git, repository: Repository, commit: str) -> dict[str, str]:
    """Return the files that decide how the image is built, the requirements last. Raises UserError."""
    dockerfile = repository.dockerfile or DOCKERFILE
    files = await _read(git, repository, commit, dockerfile, ".gitmodules")
    if dockerfile in files:
        return files | await _below_code(git, repository, commit, dockerfile, files[dockerfile])
    if repository.dockerfile:
        raise UserError(
            f"{repository.name} has no `{dockerfile}`. *Fix:* Add it, or ask an admin to change "
            "`dockerfile:` of this repository in the configuration."
        )
    files = await _read(git, repository, commit, *BUILT_FROM)
    if "uv.lock" not in files and (first := await _requirements(git, repository, commit)):
        files |= await _with_included(git, repository, commit, first)
    return files


async def _below_code(
    git: Git, repository: Repository, commit: str, dockerfile: str, text: str
) -> dict[str, str]:
    """Return the files that a Dockerfile copies before the code, if it can be split."""
    parts = await run_in_parser_thread(split, text)
    if isinstance(parts, str) or len(parts.sources) > MAX_FILES:
        return {}
    files = await _read(git, repository, commit, f"{dockerfile}.dockerignore", ".dockerignore")
    with contextlib.suppress(UserError):
        await git.prefetch(repository.url, commit, parts.sources)
        files |= await _read(git, repository, commit, *parts.sources)
    return files


async def _read(git: Git, repository: Repository, commit: str, *paths: str) -> dict[str, str]:
    found = {
        path: await git.read(repository.url, commit, path, MAX_LOCKFILE if path == "uv.lock" else MAX_FILE)
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
        many = listed(f"`{name}`" for name in found)
        raise UserError(
            f"{repository.name} has {many}, but no `{REQUIREMENTS}`. *Fix:* Rename the one for training to "
            f"`{REQUIREMENTS}`, or ask an admin to set `requirements:` of this repository."
        )
    return found[0]


async def _with_included(git: Git, repository: Repository, commit: str, first: str) -> dict[str, str]:
    """Return a requirements file, followed by all files that it includes, directly or not."""
    found: dict[str, str] = {}
    waiting = [first]
    while waiting:
        path = waiting.pop(0)
        if path in found:
            continue
        text = await git.read(repository.url, commit, path)
        if text is None:
            raise UserError(
                f"{repository.name} has no `{path}`, which its requirements include. *Fix:* Add it."
            )
        found[path] = text
        if len(found) > MAX_FILES + 1:
            raise UserError(
                f"`{first}` in {repository.name} can include at most {MAX_FILES} files with -r and -c."
            )
        waiting += await run_in_parser_thread(references, path, text)
    return found
