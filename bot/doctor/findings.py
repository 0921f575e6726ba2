"""Findings of the doctor, formatted for a terminal, as JSON, and for Slack. Pure."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from bot.slack.mrkdwn import code, plain

MAX_SLACK = 3500  # characters; Slack recommends at most 4,000 for a message's text


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, or unknown
    BROKEN = "broken"  # sweeps fail


@dataclass(frozen=True, kw_only=True)
class Finding:
    check: str  # what was checked
    level: Level
    found: str
    fix: str = ""  # a command, or where to look; empty if ok


def ok(check: str, found: str) -> Finding:
    return Finding(check=check, level=Level.OK, found=found)


def warning(check: str, found: str, fix: str) -> Finding:
    return Finding(check=check, level=Level.WARNING, found=found, fix=fix)


def broken(check: str, found: str, fix: str) -> Finding:
    return Finding(check=check, level=Level.BROKEN, found=found, fix=fix)


def as_lines(findings: Sequence[Finding]) -> str:
    """Format each finding as a line, its fix as a second one, and the counts as the last."""
    lines = []
    for one in findings:
        lines.append(f"{one.level:<8} {one.check}: {one.found}")
        lines += [f"{'':<8}   {one.fix}"] if one.fix else []
    return "\n".join([*lines, _counts(findings)])


def as_json(findings: Sequence[Finding]) -> str:
    return json.dumps([asdict(one) for one in findings], indent=2, ensure_ascii=False)


def as_mrkdwn(findings: Sequence[Finding]) -> str:
    """Format for Slack: broken first, and cut between entries at Slack's limit."""
    text = f"*Sweepbot doctor:* {_counts(findings)}"
    faults = [f for level in (Level.BROKEN, Level.WARNING) for f in findings if f.level is level]
    passed = ", ".join(plain(f.check) for f in findings if f.level is Level.OK)
    entries = [*map(_entry, faults), *([f":white_check_mark: {passed}"] if passed else [])]
    for number, entry in enumerate(entries):
        if len(text) + len(entry) > MAX_SLACK:
            return f"{text}\n… and {len(entries) - number} more: run `sweepbot doctor` for all."
        text += f"\n{entry}"
    return text


def _entry(one: Finding) -> str:
    emoji = ":x:" if one.level is Level.BROKEN else ":warning:"
    fix = f"\n        {code(one.fix)}" if one.fix else ""
    return f"{emoji} *{plain(one.check)}*: {plain(one.found)}{fix}"


def _counts(findings: Sequence[Finding]) -> str:
    counted = Counter(one.level for one in findings)
    plural = "" if counted[Level.WARNING] == 1 else "s"
    return f"{counted[Level.BROKEN]} broken, {counted[Level.WARNING]} warning{plural}, {counted[Level.OK]} ok"
