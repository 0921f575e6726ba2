"""Check `.gitmodules` of a repository with credentials, which Kaniko sends to every host there; refuse other
hosts, too many submodules, and settings that aren't plain.

All submodules, nested ones included, must be on the repository's own host.
"""

import posixpath
import re

from bot.core.errors import UserError
from bot.platform.config.repositories import Repository, url_error
from bot.platform.repos.git import Git

GITMODULES = ".gitmodules"
MAX_SUBMODULES = 30  # submodules, those of submodules included
HEADER = re.compile(r'\[submodule "[^"\\\]]+"\]')
SETTING = re.compile(r"([A-Za-z]+)\s*=\s*+([^\"\\;#]*)")
HOST = re.compile(r"https?://[^/]+")


async def check(git: Git, repository: Repository, commit: str, text: str) -> None:
    """Check `.gitmodules` (`text`) of a commit. Raises UserError, GitUnavailableError."""
    waiting, known = [(repository.url, commit, text)], {(repository.url, commit)}
    while waiting:
        url, commit, text = waiting.pop()
        there_are = modules(text)
        if len(there_are) > MAX_SUBMODULES:  # duplicates included: each costs a git call
            raise _too_many(repository)
        for path, written in there_are:
            there = _on_host(url, written, repository)
            asked = git.with_login(there, like=repository.url)
            pinned = await asked.submodule(url, commit, path)
            if (there, pinned) in known:
                continue
            known.add((there, pinned))
            if len(known) > MAX_SUBMODULES + 1:  # with the repository itself
                raise _too_many(repository)
            if (inner := await asked.read(there, pinned, GITMODULES)) is not None:
                waiting.append((there, pinned, inner))


def _too_many(repository: Repository) -> UserError:
    return UserError(f"{repository.name} has too many submodules; the limit is {MAX_SUBMODULES}.")


def modules(text: str) -> list[tuple[str, str]]:
    """Return path and URL of each. Raises UserError for anything that parsers could read differently."""
    found: list[dict[str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        plain = line.strip()
        if HEADER.fullmatch(plain):
            found.append({})
        elif plain and not plain.startswith(("#", ";")):
            match = SETTING.fullmatch(plain)
            key = match[1].lower() if match else ""
            if not match or not found or key in found[-1]:
                raise UserError(
                    f"`{GITMODULES}`:{number}: `{plain[:100]}` isn't a plain git setting. *Fix:* Write each "
                    'submodule as `[submodule "name"]`, `path = …`, and `url = …`, once and without quotes.'
                )
            found[-1][key] = match[2].strip()
    if any(not {"path", "url"} <= each.keys() for each in found):
        raise UserError(f"`{GITMODULES}`: a submodule has no path or url. *Fix:* Add both.")
    return [(each["path"], each["url"]) for each in found]


def _on_host(url: str, written: str, repository: Repository) -> str:
    """Return the resolved URL. Raises UserError if it isn't on the repository's host."""
    host = HOST.match(url)
    own = host[0] if host else ""
    there = written
    if written.startswith(("./", "../")):
        there = own + posixpath.normpath(posixpath.join(url.removeprefix(own), written))
    if there.startswith(f"{own}/") and url_error(there, ("https", "http")) is None:
        return there
    raise UserError(
        f"`{GITMODULES}` of {repository.name} names `{written[:200]}`, which isn't on {own}. The build would "
        f"send the git credentials of {repository.name} there. *Fix:* Use a submodule on {own}, or none."
    )
