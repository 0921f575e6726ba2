"""Read repositories with the git CLI: resolve branches and read single files of a commit.

User and system configuration is ignored, nothing prompts, and only https and http are allowed. The cache
belongs to one process and can be deleted at any time.
"""

import asyncio
import hashlib
import os
import re
import shutil
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from bot.core.errors import UserError
from bot.core.metrics import measured
from bot.platform.config.policy import Config
from bot.platform.repos.listings import Listings
from bot.text.masking import Mask, secrets_in_environment
from bot.text.wording import did_you_mean, listed
from k8s.api.errors import SweepbotError

PASSED_VARIABLES = (
    "PATH",
    "HTTPS_PROXY",
    "https_proxy",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
)
# A server without filter support makes git warn and sends everything.
FETCH_COMMIT = ("fetch", "--quiet", "--depth=1", "--filter=blob:none", "--no-tags", "--no-auto-gc")
# The options with which git itself fetches a missing file.
FETCH_FILES = (
    *("-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", "--filter=blob:none"),
    *("--no-tags", "--no-auto-gc", "--no-write-fetch-head", "--recurse-submodules=no"),
)
FETCH_HISTORY = ("fetch", "--quiet", "--filter=tree:0", "--no-tags", "--no-auto-gc")
# Errors that a retry won't fix; all others can be temporary.
PERMANENT_FAILURES = re.compile(
    r"authentication failed|could not read (username|password)|not found|access denied|permission denied"
    r"|requested url returned error: 40[0134]|is this a git repository|not a git repository",
    re.IGNORECASE,
)

# Answers of a host that lacks a commit, which another replica of it can have.
LOST = re.compile("not our ref|unadvertised object")

SUBMODULE = "160000"  # its mode in a tree
MIB = 2**20
MAX_FILE = MIB  # bytes of a file that is read
MAX_LISTING = 16 * MIB  # bytes of git's answer: a quarter of a million branches
MAX_HISTORY = 64 * MIB  # 1.6 million commits
MAX_STDERR = 64 * 1024  # bytes of git's error output
MAX_SUBJECT = 300  # characters
MAX_LISTED = 15  # commits between two
# A repository of some megabytes can hold a file or a delta of gigabytes. Large files are not unpacked in
# memory (core.bigFileThreshold), packs are mapped in parts, and git gets 512 MiB of address space at most, of
# which each thread would reserve up to 136.
MEMORY_SETTINGS = {
    "core.bigFileThreshold": "1m",
    "core.packedGitWindowSize": "16m",
    "core.packedGitLimit": "64m",
    "pack.threads": "1",
}
GIT_WITH_MEMORY_LIMIT = ("sh", "-c", 'ulimit -v 524288 2>/dev/null; exec git "$@"', "git")

# Those that are called, for the log: they follow options and a directory.
COMMANDS = {"init", "config", "fetch", "ls-remote", "ls-tree", "cat-file", "log", "rev-list", "rev-parse"}

Login = tuple[str, str]  # user; password or token
# Passed over a pipe: an argument or a URL would show it to other processes, logs, and error messages.
CREDENTIAL_HELPER = (
    """!f() { test "$1" = get && printf 'username=%s\\npassword=%s\\n' """
    """"$SWEEPBOT_GIT_USERNAME" "$SWEEPBOT_GIT_PASSWORD"; }; f"""
)


class GitUnavailableError(SweepbotError):
    """The git host doesn't respond; a retry can help. The message has no credentials."""


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


class Git:
    """A reader of repositories.

    Args:
        logins: user and password by URL, passed to git in its environment, only for that URL.
        timeout: seconds, for each git command.
        protocols: that git can use, separated by colons.
    """

    def __init__(
        self,
        cache: Path,
        logins: Mapping[str, Login] | None = None,
        *,
        timeout: float = 60.0,
        protocols: str = "https:http",
    ) -> None:
        self.cache = cache
        self.protocols = protocols
        self.use_logins(logins or {})
        self.timeout = timeout
        self.locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._listings = Listings()

    def use_logins(self, logins: Mapping[str, Login]) -> None:
        """Replace the credentials for all later calls."""
        self.logins = logins
        self._mask = Mask({password for _, password in logins.values()} | secrets_in_environment(os.environ))

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
            size = int(await self._run(url, "-C", repository, "cat-file", "-s", files[path]))
            if size > most:
                raise UserError(f"{path} has {size:,} bytes; the limit is {most:,}. Make it smaller.")
            content = await self._run(url, "-C", repository, "cat-file", "blob", files[path], most=most)
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
            short = f"--format=%<({MAX_SUBJECT},trunc)%s"
            line = await self._run(url, "-C", repository, "log", "-1", short, commit, "--")
        return self._mask(line.decode(errors="replace").strip())

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
            await self._run(url, "init", "--quiet", "--bare", "--", repository)
            await self._run(url, "-C", repository, "config", "remote.origin.url", url)
            try:
                await self._run(url, "-C", repository, *FETCH_HISTORY, "--", "origin", *commits)
            except GitUnavailableError as error:
                if not LOST.search(str(error)):
                    raise
                short = listed(each[:8] for each in commits)
                raise UserError(f"{url} no longer has {short}: a force-push removed it.") from None
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
        return old, [Commit(*self._mask(line).split("\0", 2)) for line in lines]

    async def between(self, url: str, old: str, new: str) -> Between:
        """Return which commits one commit's history has and the other's lacks; fetches it without files."""
        async with self._history(url, old, new) as repository:
            added = await self._log(url, repository, f"{old}..{new}")
            dropped = await self._log(url, repository, f"{new}..{old}")
        return Between(added, dropped)

    async def _log(self, url: str, repository: str, commits: str) -> CommitList:
        count = await self._run(url, "-C", repository, "rev-list", "--count", commits, "--")
        form = f"--format=%h %<({MAX_SUBJECT},trunc)%s"
        newest = ("log", f"-{MAX_LISTED}", "--abbrev=8", form, commits, "--")
        log = await self._run(url, "-C", repository, *newest)
        pairs = (self._mask(line).partition(" ") for line in _lines(log))
        return CommitList(int(count), tuple((short, subject.strip()) for short, _, subject in pairs))

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
        return {ref: commit for commit, _, ref in pairs}

    async def _files(self, url: str, repository: Path, commit: str, *paths: str) -> dict[str, str]:
        """Return regular files by path with their object names; of the root without a path."""
        entries = await self._entries(url, repository, commit, *paths)
        return {file: name for file, (mode, name) in entries.items() if mode.startswith("100")}

    async def _entries(
        self, url: str, repository: Path, commit: str, *paths: str
    ) -> dict[str, tuple[str, str]]:
        """Return mode and object name by path."""
        if (known := self._listings.get(url, commit, paths)) is not None:
            return known
        where = ("--", *paths) if any(path.strip("/") for path in paths) else ()
        listing = await self._run(url, "-C", repository, "ls-tree", "-z", commit, *where)
        entries = (entry.split("\t", 1) for entry in listing.decode(errors="replace").split("\0") if entry)
        found = {file: (about.split()[0], about.split()[2]) for about, file in entries}
        self._listings.put(url, commit, paths, found)
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

    async def _run(self, url: str, *arguments: str | Path, most: int = MAX_LISTING) -> bytes:
        """Run git; raise UserError if it prints more than `most` bytes."""
        command = next((each for each in arguments if each in COMMANDS), "")
        with measured("git", lambda error: isinstance(error, UserError), f"{command} {url}"):
            return await self._measured_run(url, *arguments, most=most)

    async def _measured_run(self, url: str, *arguments: str | Path, most: int) -> bytes:
        self.cache.mkdir(parents=True, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            *GIT_WITH_MEMORY_LIMIT,
            *arguments,
            env=self._environment(url),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that its helpers are killed with it
        )
        try:
            async with asyncio.timeout(self.timeout):
                output, errors = await asyncio.gather(
                    _read_all(process.stdout, most), _last_bytes(process.stderr)
                )
                await process.wait()
        except _OutputTooLongError:
            raise UserError(f"{url}: git's output exceeds {most // MIB} MiB.") from None
        except TimeoutError:
            raise GitUnavailableError(f"{url} didn't respond within {self.timeout:g} s") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            raise _failure(url, self._mask(errors.decode(errors="replace")))
        return output

    def _environment(self, url: str) -> dict[str, str]:
        home = self.cache / "home"
        home.mkdir(exist_ok=True)
        return {key: os.environ[key] for key in PASSED_VARIABLES if key in os.environ} | {
            "HOME": str(home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": self.protocols,
            "GIT_LITERAL_PATHSPECS": "1",
            "LC_ALL": "C",  # PERMANENT_FAILURES matches English messages
            **_settings(MEMORY_SETTINGS | (_helper(url) if url in self.logins else {})),
            **(_login(self.logins[url]) if url in self.logins else {}),
        }


def logins(config: Config, environ: Mapping[str, str]) -> dict[str, Login]:
    """Return credentials by URL, from GIT_USERNAME_<secret> and GIT_PASSWORD_<secret>. Raises UserError."""
    found = {}
    for each in config.repositories:
        if each.secret:
            suffix = re.sub(r"[.-]", "_", each.secret).upper()
            names = [f"GIT_{what}_{suffix}" for what in ("USERNAME", "PASSWORD")]
            if missing := [name for name in names if not environ.get(name)]:
                raise UserError(f"{missing[0]} isn't set (from the Secret {each.secret}, for {each.url}).")
            found[each.url] = (environ[names[0]], environ[names[1]])
    return found


def _settings(values: Mapping[str, str]) -> dict[str, str]:
    """Return git settings as environment variables."""
    found = {"GIT_CONFIG_COUNT": str(len(values))}
    for number, (key, value) in enumerate(values.items()):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found


def _helper(url: str) -> dict[str, str]:
    host = "/".join(url.split("/", 3)[:3])  # a redirect to another host gets no credentials
    return {f"credential.{host}.helper": CREDENTIAL_HELPER}


def _login(login: Login) -> dict[str, str]:
    return {"SWEEPBOT_GIT_USERNAME": login[0], "SWEEPBOT_GIT_PASSWORD": login[1]}


def _tip(refs: Mapping[str, str], branch: str) -> Tip | None:
    """Return the tip of a branch, or else of a tag, of an annotated one what it points at."""
    head, tag = f"refs/heads/{branch}", f"refs/tags/{branch}"
    for ref, commit in ((head, refs.get(head)), (tag, refs.get(f"{tag}^{{}}")), (tag, refs.get(tag))):
        if commit:
            return Tip(ref, commit)
    return None


class _OutputTooLongError(SweepbotError):
    """The output exceeds the limit."""


async def _read_all(stream: asyncio.StreamReader | None, most: int) -> bytes:
    found = bytearray()
    while stream and (part := await stream.read(MAX_STDERR)):
        found += part
        if len(found) > most:
            raise _OutputTooLongError
    return bytes(found)


async def _last_bytes(stream: asyncio.StreamReader | None) -> bytes:
    found = b""
    while stream and (part := await stream.read(MAX_STDERR)):
        found = (found + part)[-MAX_STDERR:]
    return found


def _lines(output: bytes) -> list[str]:
    """Return lines that git ended; `splitlines` would also split at characters that names can have."""
    return output.decode(errors="replace").split("\n")[:-1]


def _failure(url: str, errors: str) -> Exception:
    lines = [line for line in errors.splitlines() if line.strip()] or ["git failed without a message"]
    fatal = [line for line in lines if line.startswith("fatal: ")] or lines
    sentence = f"{url}: {fatal[-1][:200].removeprefix('fatal: ')}"
    if PERMANENT_FAILURES.search(errors):
        return UserError(f"{sentence}. Check that the repository exists and Sweepbot has read access.")
    return GitUnavailableError(sentence)
