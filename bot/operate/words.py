"""The operators' commands, such as `doctor`, also in plain words, and what several texts about sweeps share.

Pure; every command imports it.
"""

from datetime import datetime, timedelta
from typing import Any

from bot.core.finding import Finding
from bot.platform.commands.grammar import Command, Option, bare
from bot.platform.commands.option_types import invalid

COMMANDS = {
    "ps": "list unfinished sweeps and failing jobs",
    "inspect": "print why a sweep doesn't continue, and its state",
    "retry": "reconcile a sweep now, not after its delay",
    "release": "release a sweep or job from quarantine",
    "recover": "restore the records that Redis lost, and reconcile all unfinished sweeps",
}
ABOUT_ONE = {"inspect", "retry", "release"}  # need a name
MAX_NAME = 300  # characters
GROUP = "Admins"  # in the help


def _name(key: str, text: str, _context: Any) -> str:
    if len(name := bare(text)) > MAX_NAME:
        raise invalid(key, f"a name of up to {MAX_NAME} characters", name)
    return name


SWEEP, ITEM = (Option(key, _name, word=True, required=True, whole=True) for key in ("sweep", "name"))
SLACK_COMMANDS = (
    Command(
        "doctor",
        None,
        (),
        GROUP,
        "check the installation",
        answers=True,
        said="healthy installation (check ok everything all cluster node)",
    ),
    *(
        Command(f"admin {each}", None, (SWEEP,) if each in ABOUT_ONE else (), GROUP, about)
        for each, about in COMMANDS.items()
        if each != "release"
    ),
    Command("release", None, (ITEM,), GROUP, COMMANDS["release"], aliases=("admin release",)),
)
WORK = "deployment/sweepbot-work"
LOGS = f"`kubectl -n sweepbot logs {WORK}`"
NO_WORKER = Finding(
    "No worker is running: no process holds a lease.",
    f"`kubectl -n sweepbot get pods`; {LOGS}; `kubectl -n sweepbot rollout restart {WORK}`",
)


def age(since: datetime | timedelta, now: datetime) -> str:
    """`40 s`, `12 min`, `3 h`, `2 d`."""
    seconds = (now - since if isinstance(since, datetime) else since).total_seconds()
    for unit, size, least in (("d", 86_400, 2), ("h", 3600, 2), ("min", 60, 2)):
        if seconds >= size * least:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
