"""The branch of the git checkout in the working directory, if its commit is what the server would build."""

import subprocess

from bot.core.errors import UserError
from bot.sweep.launch.command_line import TABLE
from bot.sweep.launch.options import LAUNCH
from bot.text.wording import counted, shortened

ELSE = "or name the branch, such as branch=main, to launch what is pushed."


def with_branch(command: str) -> str:
    """Return the command with the checkout's branch if it names none. Raises UserError.

    Outside a checkout, the command is returned as it is, and the server says what is missing.
    """
    if "branch" in TABLE.read(LAUNCH, command).options:
        return command
    branch = _pushed_branch()
    return f"branch={branch} {command}" if branch else command


def _pushed_branch() -> str:
    """Return the current branch; "" outside a checkout. Raises UserError if its remote branch differs."""
    try:
        lines = subprocess.run(
            ["git", "status", "--porcelain=v2", "--branch"],
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return ""
    about = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# "))
    changes = [line for line in lines if not line.startswith("# ")]
    branch, (ahead, behind) = about["branch.head"], about.get("branch.ab", "+0 -0").split()
    if branch == "(detached)":
        raise UserError("The checkout is on no branch. *Fix:* git switch BRANCH, or name one: branch=main.")
    if changes:
        count = counted(len(changes), "change")
        raise UserError(
            f"The sweep wouldn't have {count} that you didn't commit. *Fix:* git commit and git push, {ELSE}"
        )
    if "branch.ab" not in about or about["branch.upstream"].partition("/")[2] != branch:
        raise UserError(
            f"Branch {shortened(branch)} isn't pushed under its name. *Fix:* git push -u origin HEAD, {ELSE}"
        )
    if ahead != "+0":
        count = counted(int(ahead), "commit")
        raise UserError(f"The sweep wouldn't have {count} that you didn't push. *Fix:* git push, {ELSE}")
    if behind != "-0":
        count = counted(-int(behind), "newer commit")
        raise UserError(f"The remote branch has {count}. *Fix:* git pull, {ELSE}")
    return branch
