"""What looking at an installation finds, and how that is shown on a terminal, as JSON and in Slack. Pure."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from bot.slack.mrkdwn import code, plain

MOST_SLACK = 3500  # characters; Slack recommends at most 4,000 for a message's text


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, or can't be seen from here
    BROKEN = "broken"  # sweeps fail, or will


@dataclass(frozen=True, kw_only=True)
class Finding:
    check: str  # what was looked at
    level: Level
    found: str
    fix: str = ""  # the command that mends it, or where to look


def ok(check: str, found: str) -> Finding:
    return Finding(check=check, level=Level.OK, found=found)


def warning(check: str, found: str, fix: str) -> Finding:
    return Finding(check=check, level=Level.WARNING, found=found, fix=fix)


def broken(check: str, found: str, fix: str) -> Finding:
    return Finding(check=check, level=Level.BROKEN, found=found, fix=fix)


def as_lines(findings: Sequence[Finding]) -> str:
    """One line each, the command that mends it below, and a line that counts."""
    lines = []
    for one in findings:
        lines.append(f"{one.level:<8} {one.check}: {one.found}")
        lines += [f"{'':<8}   {one.fix}"] if one.fix else []
    return "\n".join([*lines, _counts(findings)])


def as_json(findings: Sequence[Finding]) -> str:
    return json.dumps([asdict(one) for one in findings], indent=2, ensure_ascii=False)


def as_mrkdwn(findings: Sequence[Finding]) -> str:
    """A compact list, what is broken first; cut between entries where Slack's limit asks for it."""
    text = f"*This installation:* {_counts(findings)}"
    troubles = [f for level in (Level.BROKEN, Level.WARNING) for f in findings if f.level is level]
    well = ", ".join(plain(f.check) for f in findings if f.level is Level.OK)
    entries = [*map(_entry, troubles), *([f":white_check_mark: {well}"] if well else [])]
    for number, entry in enumerate(entries):
        if len(text) + len(entry) > MOST_SLACK:
            return f"{text}\n… and {len(entries) - number} more: `sweepbot doctor` shows all of it."
        text += f"\n{entry}"
    return text


def _entry(one: Finding) -> str:
    sign = ":x:" if one.level is Level.BROKEN else ":warning:"
    fix = f"\n        {code(one.fix)}" if one.fix else ""
    return f"{sign} *{plain(one.check)}*: {plain(one.found)}{fix}"


def _counts(findings: Sequence[Finding]) -> str:
    counted = Counter(one.level for one in findings)
    plural = "" if counted[Level.WARNING] == 1 else "s"
    return f"{counted[Level.BROKEN]} broken, {counted[Level.WARNING]} warning{plural}, {counted[Level.OK]} ok"
