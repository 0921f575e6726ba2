"""Run checks of an installation, and format their findings and counts: lines for a terminal, JSON, and a
Slack message. Checks are independent; one that fails, takes too long, or lacks a permission is a finding.

Messages of the cluster and errors come from others: callers mask secrets and remove control characters.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from itertools import chain

from bot.core.errors import UserError
from bot.core.finding import Finding, Level, broken, warning
from bot.operate.check_cluster import GRANT_READ
from bot.platform.slack.mrkdwn import code, plain
from bot.text.wording import counted
from k8s.api.errors import ApiError

CHECK_TIMEOUT = 20.0  # seconds for one check
API_FIX = "kubectl version  # check KUBECONFIG, or the pod's service account"
MAX_SLACK = 3500  # characters; Slack recommends at most 4,000 for a message's text

Findings = list[Finding]
Named = tuple[str, Awaitable[Findings]]  # a check with its name in a finding that it failed


async def run_all(checks: Iterable[Named], *, grant: str = GRANT_READ) -> Findings:
    """Return all findings, in the order of the checks. Raises nothing.

    Args:
        grant: the command that gives a missing permission; "" if there is none.
    """
    return [*chain(*await asyncio.gather(*(_checked(*each, grant) for each in checks)))]


async def _checked(name: str, check: Awaitable[Findings], grant: str) -> Findings:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            return await check
    except TimeoutError:
        return [broken(name, f"no answer within {CHECK_TIMEOUT:.0f} s", "")]
    except ApiError as error:
        if error.status == 403:
            return [warning(name, "unknown: no permission", grant)]
        return [warning(name, f"unknown: {error}", "")]
    except UserError as error:  # of a setting
        return [broken(name, str(error), "")]
    except Exception as error:  # noqa: BLE001 - every failure is a finding
        return [broken(name, f"{type(error).__name__}: {error}", "")]


def findings_lines(findings: Sequence[Finding]) -> str:
    """Format each finding as a line, its fix as a second one, and the counts as the last."""
    lines = []
    for one in findings:
        lines.append(f"{one.level:<8} {one.check}: {one.text}")
        lines += [f"{'':<8}   {one.fix}"] if one.fix else []
    return "\n".join([*lines, _counts(findings)])


def findings_json(findings: Sequence[Finding]) -> str:
    found = [{"check": f.check, "level": f.level, "found": f.text, "fix": f.fix} for f in findings]
    return json.dumps(found, indent=2, ensure_ascii=False)


def findings_mrkdwn(findings: Sequence[Finding]) -> str:
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
    return f"{emoji} *{plain(one.check)}*: {plain(one.text)}{fix}"


def _counts(findings: Sequence[Finding]) -> str:
    of = Counter(one.level for one in findings)
    return f"{of[Level.BROKEN]} broken, {counted(of[Level.WARNING], 'warning')}, {of[Level.OK]} ok"
