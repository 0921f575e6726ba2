"""The branch of the git checkout in the working directory, or one that has what isn't pushed."""

import subprocess
from itertools import takewhile
from pathlib import Path

from bot.core.errors import UserError
from bot.remote.snapshot import ELSE, changes, check, pushed
from bot.sweep.launch.command_line import TABLE
from bot.sweep.launch.options import LAUNCH

STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z")


def with_branch(command: str) -> tuple[str, str]:
    """Return the command with the checkout's branch if it names none, and what was pushed, if anything.

    Outside a checkout, the command is returned as it is, and the server says what is missing.
    Raises UserError.
    """
    if "branch" in TABLE.read(LAUNCH, command).options:
        return command, ""
    branch, note = _branch()
    return f"branch={branch} {command}" if branch else command, note


def _branch() -> tuple[str, str]:
    """Return the current branch if its remote branch is the same, else a new one; "" outside a checkout."""
    top, status = _output("rev-parse", "--show-toplevel"), _output(*STATUS)
    if not (top and status):
        return "", ""
    head = takewhile(
        lambda line: line.startswith("# "), status.split("\0")
    )  # a file's old name can be so, too
    about = dict(line[2:].split(" ", 1) for line in head)
    if about["branch.oid"] == "(initial)":
        raise UserError(f"The checkout has no commit yet. *Fix:* git commit and git push, {ELSE}")
    branch, changed = about["branch.head"], list(changes(status))
    upstream = about.get("branch.upstream", "")
    remote = _output("config", f"branch.{branch}.remote")
    remote = "origin" if remote in {"", "."} else remote  # .: it follows a local branch
    is_same = upstream == f"{remote}/{branch}" and about.get("branch.ab") == "+0 -0"
    if is_same and not changed:
        return branch, ""
    check(changed, Path(top), remote)
    return pushed(changed, "no branch" if branch == "(detached)" else branch, Path(top), remote)


def _output(*words: str) -> str:
    """Return what git prints; "" if it fails."""
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, errors="surrogateescape", check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip("\n")
