"""What a repository says, asked with the git CLI: which commit a branch is, and single files of a commit.

No one's configuration takes part and nothing prompts; only https and http are spoken. The cache is one
process's own; it may be deleted at any time.
"""

import asyncio
import hashlib
import os
import re
import shutil
import signal
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from bot.config.policy import Config
from bot.core.errors import UserError
from bot.core.masking import Mask, of_environment
from bot.core.wording import did_you_mean

PASSED_ON = ("PATH", "HTTPS_PROXY", "https_proxy", "http_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE")
# A server that knows no filter is warned about by git, and sends everything.
FETCH = ("fetch", "--quiet", "--depth=1", "--filter=blob:none", "--no-tags", "--no-auto-gc")
HISTORY = ("fetch", "--quiet", "--filter=tree:0", "--no-tags", "--no-auto-gc")
# What git says when trying again is of no use; everything else may be the weather.
REFUSALS = re.compile(
    r"authentication failed|could not read (username|password)|not found|access denied|permission denied"
    r"|requested url returned error: 40[0134]|is this a git repository|not a git repository",
    re.IGNORECASE,
)

SUBMODULE = "160000"  # its mode in a tree
MIB = 2**20
MOST_FILE = MIB  # bytes of a file that is read
MOST_LISTING = 16 * MIB  # bytes of git's answer: a quarter of a million branches
MOST_HISTORY = 64 * MIB  # 1.6 million commits
MOST_WORDS = 64 * 1024  # bytes of what git says of trouble
MOST_SUBJECT = 300  # characters
# A repository of some megabytes can hold a file or a delta of gigabytes. Large files are not unpacked in
# memory (core.bigFileThreshold), packs are mapped in parts, and git gets 512 MiB of address space at most, of
# which each thread would reserve up to 136.
MODEST = {
    "core.bigFileThreshold": "1m",
    "core.packedGitWindowSize": "16m",
    "core.packedGitLimit": "64m",
    "pack.threads": "1",
}
BOUNDED = ("sh", "-c", 'ulimit -v 524288 2>/dev/null; exec git "$@"', "git")

Login = tuple[str, str]  # user; password or token
# Told over a pipe: in an argument or an address, other processes, logs and error messages would see it.
HELPER = (
    """!f() { test "$1" = get && printf 'username=%s\\npassword=%s\\n' """
    """"$SWEEPBOT_GIT_USERNAME" "$SWEEPBOT_GIT_PASSWORD"; }; f"""
)


class GitUnavailableError(Exception):
    """The host does not answer, or not now: try again. The text is a sentence without credentials."""


@dataclass(frozen=True)
class Tip:
    """What a branch or tag points at."""

    ref: str  # refs/heads/... or refs/tags/...
    commit: str  # 40 hexadecimal digits


class Git:
    """`logins`: user and password by URL; git hears them from its environment, and only for that URL."""

    def __init__(
        self, cache: Path, logins: Mapping[str, Login] | None = None, *, timeout: float = 60.0
    ) -> None:
        self.cache, self.logins = cache, logins or {}
        self._mask = Mask({password for _, password in self.logins.values()} | of_environment(os.environ))
        self.timeout = timeout  # seconds, for each git command
        self.locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def resolve(self, url: str, branch: str) -> Tip:
        """A branch, else a tag of that name, annotated or not. Raises UserError, GitUnavailableError."""
        head, tag = f"refs/heads/{branch}", f"refs/tags/{branch}"
        refs = await self._refs(url, head, tag, f"{tag}^{{}}")
        for ref, commit in ((head, refs.get(head)), (tag, refs.get(f"{tag}^{{}}")), (tag, refs.get(tag))):
            if commit:
                return Tip(ref, commit)
        names = {ref.split("/", 2)[2].removesuffix("^{}") for ref in await self._refs(url)}
        hint = " A commit needs a branch or a tag." if re.fullmatch("[0-9a-f]{7,40}", branch) else ""
        raise UserError(f"branch={branch} is not in {url}.{hint}{did_you_mean(branch, sorted(names))}")

    async def read(self, url: str, commit: str, path: str, most: int = MOST_FILE) -> str | None:
        """A file's text; None when the commit has no such file.

        Raises UserError, also for a file of more than `most` bytes, of which nothing is read; GitUnavailable.
        """
        async with self.locks[url]:
            repository = await self._fetched(url, commit)
            files = await self._files(url, repository, commit, path)
            if path not in files:
                return None
            size = int(await self._run(url, "-C", repository, "cat-file", "-s", files[path]))
            if size > most:
                raise UserError(f"{path} has {size:,} bytes; Sweepbot reads up to {most:,}. Make it smaller.")
            content = await self._run(url, "-C", repository, "cat-file", "blob", files[path], most=most)
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise UserError(f"{path} of commit {commit[:7]} is not UTF-8 text") from None

    async def submodule(self, url: str, commit: str, path: str) -> str:
        """The commit that a submodule is pinned to. Raises UserError, GitUnavailableError."""
        async with self.locks[url]:
            repository = await self._fetched(url, commit)
            found = await self._entries(url, repository, commit, path)
        if path not in found or found[path][0] != SUBMODULE:
            raise UserError(f"`.gitmodules` names {path}, which is no submodule of commit {commit[:7]}.")
        return found[path][1]

    def with_login(self, url: str, *, like: str) -> "Git":
        """The same, with the login of `like` for one more URL."""
        logins = {url: self.logins[like]} if like in self.logins else {}
        made = Git(self.cache, {**logins, **self.logins}, timeout=self.timeout)
        made.locks = self.locks
        return made

    async def names(self, url: str, commit: str, folder: str) -> list[str]:
        """The names of the files in a folder, sorted; empty when there is no such folder."""
        async with self.locks[url]:
            repository = await self._fetched(url, commit)
            files = await self._files(url, repository, commit, f"{folder.rstrip('/')}/")
        return sorted(PurePosixPath(path).name for path in files)

    async def subject(self, url: str, commit: str) -> str:
        """The first line of the commit's message, masked."""
        async with self.locks[url]:
            repository = await self._fetched(url, commit)
            short = f"--format=%<({MOST_SUBJECT},trunc)%s"
            line = await self._run(url, "-C", repository, "log", "-1", short, commit, "--")
        return self._mask(line.decode(errors="replace").strip())

    async def contains(self, url: str, tip: Tip, commit: str) -> bool:
        """Whether the commit is in the tip's history, which is fetched for it, without files."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self.cache) as repository:
            await self._run(url, "init", "--quiet", "--bare", "--", repository)
            await self._run(url, "-C", repository, "config", "remote.origin.url", url)
            await self._run(url, "-C", repository, *HISTORY, "--", "origin", f"{tip.ref}:{tip.ref}")
            listing = ("-C", repository, "rev-list", tip.ref, "--")
            history = await self._run(url, *listing, most=MOST_HISTORY)
        return commit.encode() in history

    async def branches(self, url: str) -> list[str]:
        """Their names, without tags. Raises UserError, GitUnavailableError."""
        heads = "refs/heads/"
        return [ref.removeprefix(heads) for ref in await self._refs(url) if ref.startswith(heads)]

    async def reach(self, url: str) -> None:
        """Raises UserError, GitUnavailableError when it can't be read."""
        await self._refs(url)

    async def _refs(self, url: str, *patterns: str) -> dict[str, str]:
        listing = await self._run(url, "ls-remote", "--heads", "--tags", "--", url, *patterns)
        pairs = (line.split("\t", 1) for line in listing.decode(errors="replace").splitlines())
        return {ref: commit for commit, ref in pairs}

    async def _files(self, url: str, repository: Path, commit: str, path: str) -> dict[str, str]:
        """Regular files by path, with the name of their content; of the root without a path."""
        entries = await self._entries(url, repository, commit, path)
        return {file: name for file, (mode, name) in entries.items() if mode.startswith("100")}

    async def _entries(
        self, url: str, repository: Path, commit: str, path: str
    ) -> dict[str, tuple[str, str]]:
        """Mode and name of the content, by path."""
        where = ("--", path) if path.strip("/") else ()
        listing = await self._run(url, "-C", repository, "ls-tree", "-z", commit, *where)
        entries = (entry.split("\t", 1) for entry in listing.decode(errors="replace").split("\0") if entry)
        return {file: (about.split()[0], about.split()[2]) for about, file in entries}

    async def _fetched(self, url: str, commit: str) -> Path:
        """A bare repository with the commit and its folders; contents come one by one as they are read."""
        repository = self.cache / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.git"
        keep = f"refs/sweepbot/{commit}"
        if (repository / keep).exists():
            return repository
        try:
            await self._run(url, "init", "--quiet", "--bare", "--", repository)
            await self._run(url, "-C", repository, "config", "remote.origin.url", url)
            await self._run(url, "-C", repository, *FETCH, "--", "origin", f"{commit}:{keep}")
        except BaseException:
            shutil.rmtree(repository, ignore_errors=True)  # a fetch cut short leaves locks behind
            raise
        return repository

    async def _run(self, url: str, *arguments: str | Path, most: int = MOST_LISTING) -> bytes:
        """Raises UserError for an answer of more than `most` bytes."""
        self.cache.mkdir(parents=True, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            *BOUNDED,
            *arguments,
            env=self._environment(url),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # git's helpers end with it
        )
        try:
            async with asyncio.timeout(self.timeout):
                output, errors = await asyncio.gather(_whole(process.stdout, most), _end(process.stderr))
                await process.wait()
        except _TooLong:
            raise UserError(f"{url}: git answers with more than {most // MIB} MiB") from None
        except TimeoutError:
            raise GitUnavailableError(f"{url} did not answer within {self.timeout:g} s") from None
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
        return {key: os.environ[key] for key in PASSED_ON if key in os.environ} | {
            "HOME": str(home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "https:http",
            "GIT_LITERAL_PATHSPECS": "1",
            "LC_ALL": "C",  # the refusals are recognised by their words
            **_settings(MODEST | (_helper(url) if url in self.logins else {})),
            **(_login(self.logins[url]) if url in self.logins else {}),
        }


def logins(config: Config, environ: Mapping[str, str]) -> dict[str, Login]:
    """Of repositories with a secret: GIT_USERNAME_<secret> and GIT_PASSWORD_<secret>. Raises UserError."""
    found = {}
    for each in config.repositories:
        if each.secret:
            suffix = re.sub(r"[.-]", "_", each.secret).upper()
            names = [f"GIT_{what}_{suffix}" for what in ("USERNAME", "PASSWORD")]
            if missing := [name for name in names if not environ.get(name)]:
                raise UserError(
                    f"{missing[0]} is not set. It is of the Secret {each.secret}, for {each.url}."
                )
            found[each.url] = (environ[names[0]], environ[names[1]])
    return found


def _settings(values: Mapping[str, str]) -> dict[str, str]:
    """Of git, as its environment has them."""
    found = {"GIT_CONFIG_COUNT": str(len(values))}
    for number, (key, value) in enumerate(values.items()):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found


def _helper(url: str) -> dict[str, str]:
    host = "/".join(url.split("/", 3)[:3])  # a redirection to another one hears nothing
    return {f"credential.{host}.helper": HELPER}


def _login(login: Login) -> dict[str, str]:
    return {"SWEEPBOT_GIT_USERNAME": login[0], "SWEEPBOT_GIT_PASSWORD": login[1]}


class _TooLong(Exception):  # noqa: N818
    """More than was asked for."""


async def _whole(stream: asyncio.StreamReader | None, most: int) -> bytes:
    found = bytearray()
    while stream and (part := await stream.read(MOST_WORDS)):
        found += part
        if len(found) > most:
            raise _TooLong
    return bytes(found)


async def _end(stream: asyncio.StreamReader | None) -> bytes:
    found = b""
    while stream and (part := await stream.read(MOST_WORDS)):
        found = (found + part)[-MOST_WORDS:]
    return found


def _failure(url: str, errors: str) -> Exception:
    lines = [line for line in errors.splitlines() if line.strip()] or ["git said nothing"]
    fatal = [line for line in lines if line.startswith("fatal: ")] or lines
    sentence = f"{url}: {fatal[-1][:200].removeprefix('fatal: ')}"
    if REFUSALS.search(errors):
        return UserError(f"{sentence}. Does the repository exist, and may Sweepbot read it?")
    return GitUnavailableError(sentence)
