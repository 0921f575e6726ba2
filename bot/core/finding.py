"""What is wrong, why, and how to fix it: one value for checks, pods, sweeps, and Deployments. Pure."""

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, or unknown
    BROKEN = "broken"  # sweeps fail


@dataclass(frozen=True)
class Finding:
    text: str  # the state, and its cause
    fix: str = ""  # an imperative, or a command; empty if there is nothing to do
    _: KW_ONLY
    detail: str = ""  # the message of the component that failed, or the end of the log
    check: str = ""  # what was checked; empty if it is clear from where the finding is shown
    level: Level = Level.BROKEN

    def __str__(self) -> str:
        return with_fix(self.text, self.fix)


def with_fix(text: str, fix: str) -> str:
    """Return both as one line of a message."""
    return f"{text} *Fix:* {fix}" if fix else text


def ok(check: str, text: str) -> Finding:
    return Finding(text, check=check, level=Level.OK)


def warning(check: str, text: str, fix: str) -> Finding:
    return Finding(text, fix, check=check, level=Level.WARNING)


def broken(check: str, text: str, fix: str) -> Finding:
    return Finding(text, fix, check=check)
