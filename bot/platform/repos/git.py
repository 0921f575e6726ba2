"""Read repositories: resolve branches and tags, or say that one doesn't exist; read single files of a commit,
within a limit of size; list commits, and those between two.

Of each repository there is a clone with what was read. It belongs to one process, and can be deleted at any
time.
"""

import asyncio
import hashlib
import re
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from bot.core.errors import UserError
from bot.platform.repos.git_commands import (
    MIB,
    GitCommands,
    GitUnavailableError,
    Login,
    OutputTooLongError,
)
from bot.text.wording import did_you_mean

# A server without filter support makes git warn and sends everything.
FETCH_COMMIT = ("fetch", "--quiet", "--depth=1", "--filter=blob:none", "--no-tags", "--no-auto-gc")
# The options with which git itself fetches a missing file.
FETCH_FILES = (
    *("-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", "--filter=blob:none"),
    *("--no-tags", "--no-auto-gc", "--no-write-fetch-head", "--recurse-submodules=no"),
)
FETCH_HISTORY = ("fetch", "--quiet", "--filter=tree:0", "--no-tags", "--no-auto-gc")
# Answers of a host that lacks a commit, which another replica of it can have.
LOST = re.compile("(?:not our ref|unadvertised object) ([0-9a-f]{8})")

SHA1 = 40  # hexadecimal digits
SUBMODULE = "160000"  # its mode in a tree
MAX_FILE = MIB  # bytes of a file that is read
MAX_HISTORY = 64 * MIB  # 1.6 million commits
MAX_READ, MAX_SUBJECT = 2_000, 300  # characters of a subject that git prints, and, once masked, shown
MAX_LISTED = 15  # commits between two
Entry = tuple[str, str]  # an object's mode and name


@dataclass(frozen=True)
class Tip:
    """What a branch or tag points at."""

    ref: str  # refs/heads/... or refs/tags/...
    commit: str  # 40 hexadecimal digits


@dataclass(frozen=True)
class Commit:
    name: str  # 40 hexadecimal digits
    author: str
    subject: str  # first line of the message


@dataclass(frozen=True)
class CommitList:
    count: int
    shown: tuple[tuple[str, str], ...]  # short hash and subject of the newest MAX_LISTED


async def named_branches(git: "Git", url: str, text: str) -> tuple[str, ...]:
    """Return the branches that `branch=` names: one whose name has commas, else those between them.

    Raises GitUnavailableError.
    """
    if "," in text:
        with suppress(UserError):
            await git.resolve(url, text)
            return (text,)
    return tuple(text.split(","))


@dataclass(frozen=True)
class Between:
    """The commits between two: what the second one's history adds, and what it lacks of the first one's."""

    added: CommitList
    dropped: CommitList


class Git(GitCommands):
    """A reader of repositories."""

    def __init__(
        self,
        cache: Path,
        logins: Mapping[str, Login] | None = None,
        *,
        timeout: float = 60.0,
        protocols: str = "https:http",
    ) -> None:
        super().__init__(cache, logins or {}, timeout, protocols)
        self.locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # By URL, the commit that was listed last, with its entries by path; None: it has no such path.
        self._listed: dict[str, tuple[str, dict[str, Entry | None]]] = {}

    async def resolve(self, url: str, branch: str) -> Tip:
        """Return the tip of a branch, or else of a tag. Raises UserError, GitUnavailableError."""
        head, tag = f"refs/heads/{branch}", f"refs/tags/{branch}"
        if tip := _tip(await self._refs(url, head, tag, f"{tag}^{{}}"), branch):
            return tip
        refs = await self._refs(url)  # perhaps from another replica of the host, which is ahead of the first
        if tip := _tip(refs, branch):
            return tip
        if re.fullmatch("[0-9a-f]{7,40}", branch):
            hint = " Commit hashes aren't supported; use a branch or tag."
        else:
            names = {ref.split("/", 2)[2].removesuffix("^{}") for ref in refs}
            hint = did_you_mean(branch, sorted(names))
        raise UserError(f"branch={branch} doesn't exist in {url}.{hint}", field="branch")

    async def prefetch(self, url: str, commit: str, paths: Sequence[str]) -> None:
        """Fetch those of the paths that the commit has in one request; otherwise each `read` needs its own.

        Raises UserError, GitUnavailableError.
        """
        if not paths:
            return
        async with self.locks[url]:
            repository = await self._fetched(url, commit)
            names = set((await self._files(url, repository, commit, *paths)).values())
            fetched = repository / "sweepbot-files"  # an empty file per fetched file
            if missing := sorted(name for name in names if not (fetched / name).exists()):
                await self._fetch(url, repository, *FETCH_FILES, "--", "origin", *missing)
                fetched.mkdir(exist_ok=True)
                for name in missing:
                    (fetched / name).touch()

    async def read(self, url: str, commit: str, path: str, most: int = MAX_FILE) -> str | None:
        """Return a file's text; None if the commit has no such file.

        Raises UserError, also for a file of more than `most` bytes; GitUnavailableError.
        """
        async with self.locks[url]:
            repository = await self._fetched(url, commit)
            files = await self._files(url, repository, commit, path)
            if path not in files:
                return None
            try:
                content = await self._run(url, "-C", repository, "cat-file", "blob", files[path], most=most)
            except OutputTooLongError:
                size = int(await self._run(url, "-C", repository, "cat-file", "-s", files[path]))
                text = f"{path} has {size:,} bytes; the limit is {most:,}. Make it smaller."
                raise UserError(text) from None
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise UserError(f"{path} of commit {commit[:7]} isn't UTF-8 text.") from None

    async def submodule(self, url: str, commit: str, path: str) -> str:
        """Return the commit that a submodule is pinned to. Raises UserError, GitUnavailableError."""
        async with self.locks[url]:
            repository = await self._fetched(url, commit)
            found = await self._entries(url, repository, commit, path)
        if path not in found or found[path][0] != SUBMODULE:
            raise UserError(f"`.gitmodules` names {path}, which isn't a submodule of commit {commit[:7]}.")
        return found[path][1]

    def with_login(self, url: str, *, like: str) -> "Git":
        """Return a copy with the credentials of `like` for one more URL."""
        logins = {url: self.logins[like]} if like in self.logins else {}
        known = {**logins, **self.logins}
        made = Git(self.cache, known, timeout=self.timeout, protocols=self.protocols)
        made.locks = self.locks
        return made

    async def names(self, url: str, commit: str, folder: str) -> list[str]:
        """Return the sorted names of the files in a directory; empty if it doesn't exist."""
        async with self.locks[url]:
            repository = await self._fetched(url, commit)
            files = await self._files(url, repository, commit, f"{folder.rstrip('/')}/")
        return sorted(PurePosixPath(path).name for path in files)

    async def subject(self, url: str, commit: str) -> str:
        """Return the first line of the commit's message, masked."""
        async with self.locks[url]:
            repository = await self._fetched(url, commit)
            short = f"--format=%<({MAX_READ},trunc)%s"
            line = await self._run(url, "-C", repository, "log", "-1", short, commit, "--")
        return self._mask(line.decode(errors="replace").strip())[:MAX_SUBJECT]

    async def contains(self, url: str, tip: Tip, commit: str) -> bool:
        """Return whether the tip's history contains the commit; fetches the history without files."""
        async with self._history(url, f"{tip.ref}:{tip.ref}") as repository:
            listing = ("-C", repository, "rev-list", tip.ref, "--")
            history = await self._run(url, *listing, most=MAX_HISTORY)
        return commit.encode() in history

    @asynccontextmanager
    async def _history(self, url: str, *commits: str) -> AsyncIterator[str]:
        """Yield a repository with the history of commits or refs, without files."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self.cache) as repository:
            try:
                await self._fetch(url, Path(repository), *FETCH_HISTORY, "--", "origin", *commits)
            except GitUnavailableError as error:
                if not (lost := LOST.search(str(error))):
                    raise
                raise UserError(f"{url} no longer has {lost[1]}: a force-push removed it.") from None
            yield repository

    async def commits(self, url: str, old: str, new: str) -> tuple[str, list[Commit]]:
        """Return the full hash of `old`, and the commits after it up to `new`, the oldest first, masked.

        They are those along first parents. None if `old` isn't an ancestor. Raises UserError, also if the
        repository has lost `new`; GitUnavailableError.
        """
        async with self._history(url, new) as repository:
            ancestors = await self._run(url, "-C", repository, "rev-list", new, "--", most=MAX_HISTORY)
            place = (b"\n" + ancestors).find(f"\n{old}".encode())
            if place < 0:
                return old, []
            old = ancestors[place : place + len(new)].decode()
            form, span = "--format=%H%x00%an%x00%s", f"{old}..{new}"
            listing = ("log", "--reverse", "--first-parent", form, span, "--")
            lines = _lines(await self._run(url, "-C", repository, *listing))
        return old, [Commit(*map(self._mask, line.split("\0", 2))) for line in lines]

    async def between(self, url: str, old: str, new: str) -> Between:
        """Return which commits one commit's history has and the other's lacks; fetches it without files."""
        async with self._history(url, old, new) as repository:
            added = await self._log(url, repository, f"{old}..{new}")
            dropped = await self._log(url, repository, f"{new}..{old}")
        return Between(added, dropped)

    async def _log(self, url: str, repository: str, commits: str) -> CommitList:
        count = await self._run(url, "-C", repository, "rev-list", "--count", commits, "--")
        form = f"--format=%h %<({MAX_READ},trunc)%s"
        newest = ("log", f"-{MAX_LISTED}", "--abbrev=8", form, commits, "--")
        log = await self._run(url, "-C", repository, *newest)
        pairs = (self._mask(line).partition(" ") for line in _lines(log))
        return CommitList(
            int(count), tuple((short, subject.strip()[:MAX_SUBJECT]) for short, _, subject in pairs)
        )

    async def branches(self, url: str) -> list[str]:
        """Return the names of the branches. Raises UserError, GitUnavailableError."""
        heads = "refs/heads/"
        return [ref.removeprefix(heads) for ref in await self._refs(url) if ref.startswith(heads)]

    async def check_access(self, url: str) -> None:
        """Raise UserError or GitUnavailableError if the repository can't be read."""
        await self._refs(url)

    async def _refs(self, url: str, *patterns: str) -> dict[str, str]:
        listing = await self._run(url, "ls-remote", "--heads", "--tags", "--", url, *patterns)
        pairs = (line.partition("\t") for line in _lines(listing))
        refs = {ref: commit for commit, _, ref in pairs}
        if any(len(commit) > SHA1 for commit in refs.values()):
            raise UserError(
                f"{url} has SHA-256 commits, which builds don't support. *Fix:* Use one with SHA-1."
            )
        return refs

    async def _files(self, url: str, repository: Path, commit: str, *paths: str) -> dict[str, str]:
        """Return regular files by path with their object names; of the root without a path."""
        entries = await self._entries(url, repository, commit, *paths)
        return {file: name for file, (mode, name) in entries.items() if mode.startswith("100")}

    async def _entries(self, url: str, repository: Path, commit: str, *paths: str) -> dict[str, Entry]:
        """Return mode and object name by path; of paths of files that were listed before, without git."""
        last, known = self._listed.get(url, ("", {}))
        known = known if last == commit else {}
        if paths and all(path in known for path in paths):
            return {path: entry for path in paths if (entry := known[path])}
        where = ("--", *paths) if any(path.strip("/") for path in paths) else ()
        listing = await self._run(url, "-C", repository, "ls-tree", "-z", commit, *where)
        entries = (entry.split("\t", 1) for entry in listing.decode(errors="replace").split("\0") if entry)
        found = {file: (about.split()[0], about.split()[2]) for about, file in entries}
        if all(path.strip("/") and not path.endswith("/") for path in paths):  # a slash lists a directory
            self._listed[url] = commit, known | {path: found.get(path) for path in paths}
        return found

    async def _fetched(self, url: str, commit: str) -> Path:
        """Return a bare repository with the commit and its trees; file contents are fetched when read."""
        repository = self.cache / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.git"
        keep = f"refs/sweepbot/{commit}"
        if (repository / keep).exists():
            return repository
        await self._fetch(url, repository, *FETCH_COMMIT, "--", "origin", f"{commit}:{keep}")
        return repository

    async def _fetch(self, url: str, repository: Path, *arguments: str) -> None:
        try:
            await self._run(url, "init", "--quiet", "--bare", "--", repository)
            await self._run(url, "-C", repository, "config", "remote.origin.url", url)
            await self._run(url, "-C", repository, *arguments)
        except BaseException:
            shutil.rmtree(repository, ignore_errors=True)  # an interrupted fetch leaves locks behind
            raise


def _tip(refs: Mapping[str, str], branch: str) -> Tip | None:
    """Return the tip of a branch, or else of a tag, of an annotated one what it points at."""
    head, tag = f"refs/heads/{branch}", f"refs/tags/{branch}"
    for ref, commit in ((head, refs.get(head)), (tag, refs.get(f"{tag}^{{}}")), (tag, refs.get(tag))):
        if commit:
            return Tip(ref, commit)
    return None


def _lines(output: bytes) -> list[str]:
    """Return lines that git ended; `splitlines` would also split at characters that names can have."""
    return output.decode(errors="replace").split("\n")[:-1]
