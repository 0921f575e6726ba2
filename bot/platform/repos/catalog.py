"""Branches and spaces of a repository, with the descriptions of spaces, for menus that must respond within
three seconds.

A worker reads git for the work item `look: URL [BRANCH]`; menus read its result from Redis:

    names:<url>, names:<url> <branch>    the last result    a day
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from time import monotonic

from redis.asyncio import Redis

from bot.core.errors import UserError
from bot.core.space import FOLDER
from bot.core.stored_format import cached, late_adapter
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.config.yaml_reader import MAX_CHARACTERS, read
from bot.platform.repos.git import Git, named_branches
from bot.platform.repos.git_commands import GitUnavailableError
from bot.platform.storage.work_queue import Queue


@dataclass(frozen=True, kw_only=True)
class Name:
    name: str
    about: str = ""  # one line, shown below the name


@dataclass(frozen=True, kw_only=True)
class GitNames:
    """The last result from git."""

    names: tuple[Name, ...] = ()
    at: datetime | None = None  # None: no result yet
    error: str = ""  # why the last attempt failed


REFRESH_AFTER = timedelta(seconds=15)
RETENTION = timedelta(days=1)
FIRST_RESULT_TIMEOUT = 1.5  # seconds
MAX_DESCRIBED = 50  # spaces whose descriptions are read
MAX_GIT_NAMES = 3_000  # per repository: menus read all of them for each typed letter
MAX_WRITTEN, MAX_DESCRIPTION = 1_000, 100  # characters in the file; shown, of which a menu shows 75
_NAMES = late_adapter(GitNames)


class Catalog:
    def __init__(self, redis: Redis, queue: Queue, now: Callable[[], datetime]) -> None:
        self._redis, self._queue, self._now = redis, queue, now

    async def names(self, url: str, branch: str = "", *, wait: float = FIRST_RESULT_TIMEOUT) -> GitNames:
        """Return the branches of a repository, or the spaces of a branch; queue a refresh if they are old.

        Without a first result, waits up to `wait` seconds for one. Raises RedisError.
        """
        until = monotonic() + wait
        found = await self._read(url, branch)
        if found.at is None or self._now() - found.at > REFRESH_AFTER:
            await self._queue.add(WorkItem(ItemKind.GIT_NAMES, f"{url} {branch}".rstrip()))
        while found.at is None and not found.error and monotonic() < until:
            await asyncio.sleep(0.1)
            found = await self._read(url, branch)
        return found

    async def refresh(self, key: str, git: Git) -> None:
        """Handle a work item: read git and store the result, or the error, for the menus."""
        url, _, branch = key.partition(" ")
        before = await self._read(url, branch)
        try:
            names = await (spaces(git, url, branch) if branch else branches(git, url))
            found = GitNames(names=names, at=self._now())
        except (UserError, GitUnavailableError) as error:
            found = replace(before, error=str(error).splitlines()[0])
        await self._redis.set(_key(url, branch), _NAMES.dump_json(found), ex=RETENTION)

    async def _read(self, url: str, branch: str) -> GitNames:
        found = await self._redis.get(_key(url, branch))
        return cached(_NAMES, found) or GitNames()


async def branches(git: Git, url: str) -> tuple[Name, ...]:
    return tuple(Name(name=name) for name in (await git.branches(url))[:MAX_GIT_NAMES])


async def spaces(git: Git, url: str, branch: str) -> tuple[Name, ...]:
    first, *_ = await named_branches(git, url, branch)
    commit = (await git.resolve(url, first)).commit
    files = [PurePosixPath(name) for name in await git.names(url, commit, FOLDER)]
    stems = sorted(file.stem for file in files if file.suffix == ".yaml")[:MAX_GIT_NAMES]
    await git.prefetch(url, commit, [f"{FOLDER}/{stem}.yaml" for stem in stems[:MAX_DESCRIBED]])
    return tuple(
        [
            Name(name=stem, about=await _about(git, url, commit, stem) if place < MAX_DESCRIBED else "")
            for place, stem in enumerate(stems)
        ]
    )


async def _about(git: Git, url: str, commit: str, stem: str) -> str:
    try:
        return description(await git.read(url, commit, f"{FOLDER}/{stem}.yaml", MAX_CHARACTERS) or "")
    except UserError:  # not text, or too long
        return ""


def description(text: str) -> str:
    """Return a space file's `description:`, or else its first comment."""
    if written := re.search(r"^description:.*(\n[ \t].*)*", text, re.MULTILINE):  # the rest can be long
        try:
            found = read(written[0][:MAX_WRITTEN], FOLDER).mapping()["description"]
            return found.raw.strip()[:MAX_DESCRIPTION]
        except UserError:  # the launch says what is wrong
            return ""
    first = re.match(r"(?:\s|---\s|# *yaml-language-server:.*)*+#+[ \t]*(.*)", text)
    return first[1].strip()[:MAX_DESCRIPTION] if first else ""


def _key(url: str, branch: str) -> str:
    return f"sweepbot:names:{url} {branch}".rstrip()
