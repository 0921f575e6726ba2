"""Run the git CLI: within limits of memory, output, and time, and with credentials for their URL only; word
its failures, and tell which ones a retry can't fix.

User and system configuration is ignored, nothing prompts, and only https and http are allowed.
"""

import asyncio
import os
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from bot.core.errors import UserError
from bot.core.metrics import measured
from bot.platform.config.policy import Config
from bot.text.masking import Mask, secrets_in_environment
from k8s.api.errors import SweepbotError

MIB = 2**20
MAX_LISTING = 16 * MIB  # bytes of git's answer: a quarter of a million branches
MAX_STDERR = 64 * 1024  # bytes of git's error output
PASSED_VARIABLES = (
    "PATH",
    "HTTPS_PROXY",
    "https_proxy",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
)
# Errors that a retry won't fix; all others can be temporary.
PERMANENT_FAILURES = re.compile(
    r"authentication failed|could not read (username|password)|not found|access denied|permission denied"
    r"|requested url returned error: 4(?:0[0134]|10|51)|is this a git repository|not a git repository"
    r"|unable to update url base from redirection",  # to a login page
    re.IGNORECASE,
)

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


class GitCommands:
    """What runs git in one process.

    Args:
        cache: a directory for clones, and git's home.
        logins: user and password by URL, passed to git in its environment, only for that URL.
        timeout: seconds, for each git command.
        protocols: that git can use, separated by colons.
    """

    def __init__(self, cache: Path, logins: Mapping[str, Login], timeout: float, protocols: str) -> None:
        self.cache, self.timeout, self.protocols = cache, timeout, protocols
        self.use_logins(logins)

    def use_logins(self, logins: Mapping[str, Login]) -> None:
        """Replace the credentials for all later calls."""
        self.logins = logins
        self._mask = Mask({password for _, password in logins.values()} | secrets_in_environment(os.environ))

    async def _run(self, url: str, *arguments: str | Path, most: int = MAX_LISTING) -> bytes:
        """Run git; raise OutputTooLongError if it prints more than `most` bytes."""
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
                    _read_all(process.stdout, most, partial(_kill, process)), _last_bytes(process.stderr)
                )
                await process.wait()
        except OutputTooLongError:
            raise OutputTooLongError(f"{url}: git's output exceeds {most // MIB} MiB.") from None
        except TimeoutError:
            raise GitUnavailableError(f"{url} didn't respond within {self.timeout:g} s") from None
        finally:
            if process.returncode is None:
                _kill(process)
                # Reads what is left: until all is read, wait() of Python 3.11 doesn't return.
                await process.communicate()
        if process.returncode:
            raise _failure(url, self._mask(errors.decode(errors="replace")))
        return output

    def _environment(self, url: str) -> dict[str, str]:
        home, settings, own = self.cache / "home", MEMORY_SETTINGS, dict[str, str]()
        home.mkdir(exist_ok=True)
        if url in self.logins:
            user, password = self.logins[url]
            own = {"SWEEPBOT_GIT_USERNAME": user, "SWEEPBOT_GIT_PASSWORD": password}
            host = "/".join(url.split("/", 3)[:3])  # a redirect to another host gets no credentials
            settings = settings | {f"credential.{host}.helper": CREDENTIAL_HELPER}
        if bundle := os.environ.get("SSL_CERT_FILE"):  # OpenSSL's; Debian's git doesn't use it
            own["GIT_SSL_CAINFO"] = bundle
        return {key: os.environ[key] for key in PASSED_VARIABLES if key in os.environ} | {
            "HOME": str(home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": self.protocols,
            "GIT_LITERAL_PATHSPECS": "1",
            "LC_ALL": "C",  # PERMANENT_FAILURES matches English messages
            **_settings(settings),
            **own,
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


class OutputTooLongError(UserError):
    """Git's output exceeds the limit."""


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _read_all(stream: asyncio.StreamReader | None, most: int, kill: Callable[[], None]) -> bytes:
    """Read to the end. Kill the process after more than `most` bytes, and raise OutputTooLongError."""
    found = bytearray()
    while stream and (part := await stream.read(MAX_STDERR)):
        if len(found) > most:
            continue  # what was in the pipe
        found += part
        if len(found) > most:
            kill()
    if len(found) > most:
        raise OutputTooLongError("")
    return bytes(found)


async def _last_bytes(stream: asyncio.StreamReader | None) -> bytes:
    found = b""
    while stream and (part := await stream.read(MAX_STDERR)):
        found = (found + part)[-MAX_STDERR:]
    return found


NO_REASON = "Could not read from remote repository"


def _failure(url: str, errors: str) -> Exception:
    lines = [line for line in errors.splitlines() if line.strip()] or ["git failed without a message"]
    # The last one follows a reason of the other side, such as an owner that git distrusts.
    fatal = [line for line in lines if line.startswith("fatal: ") and NO_REASON not in line] or lines
    sentence = f"{url}: {fatal[-1][:200].removeprefix('fatal: ').removesuffix(':')}"
    if PERMANENT_FAILURES.search(errors):
        return UserError(f"{sentence}. Check that the repository exists and Sweepbot has read access.")
    return GitUnavailableError(sentence)
