"""What a bisect's failed trial shows: its pods, the cause in their log, and the line that was changed."""

import asyncio
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import PurePosixPath

from bot.core.record import SweepRecord
from bot.core.request import Bisection
from bot.platform.pod_health.evidence import OVER_DISK
from bot.platform.pod_health.log_cause import LogCause, find_cause
from bot.sweep.clients import SweepClients
from k8s.objects import SWEEP_LABEL
from k8s.pods import Pod, is_trial_pod, read_trial_pod

LOG_LINES = 400
MAX_LINE = 200  # characters of a changed line
MAX_DIFF = 2_000  # lines from a file's first change to its last


async def latest_pods(sweep: SweepRecord, trial: str, clients: SweepClients) -> list[Pod]:
    """Return the latest pod of each worker of a trial, "" for that of a step."""
    labels, there = f"{SWEEP_LABEL}={sweep.id}", clients.of(sweep.cluster)
    found = await there.trials.list("Pod", _namespace(sweep), labels=labels, only=is_trial_pod)
    found.sort(key=lambda each: each["metadata"].get("creationTimestamp", ""))
    return [*{pod.index: pod for pod in map(read_trial_pod, found) if trial in {"", pod.job}}.values()]


async def cause_of(sweep: SweepRecord, pods: list[Pod], clients: SweepClients) -> LogCause:
    """Return what the log of a failed pod names; an empty cause without a log."""
    failed = next((each for each in pods if each.exit and each.exit[0]), None)
    if failed is None:
        return LogCause()
    there = clients.of(sweep.cluster)
    return await asyncio.to_thread(
        find_cause, await there.tail(_namespace(sweep), failed.name, failed.container, LOG_LINES)
    )


def _namespace(sweep: SweepRecord) -> str:
    return sweep.plan.experiment_ref.namespace if sweep.plan else sweep.namespace


def is_lost(pods: list[Pod]) -> bool:
    """Return whether the cluster stopped the trial, such as by preemption, and not its code.

    `pods`: of its workers, the latest of each. A pod that used more disk than its limit failed by itself.
    """
    disrupted = [each for each in pods if each.disruption[0] or each.exit is None]
    return not pods or any(not re.search(OVER_DISK, each.disruption[1]) for each in disrupted)


async def changed_line(bisection: Bisection, clients: SweepClients) -> tuple[str, str] | None:
    """Return place and text of a line that the commit changed in the file of the traceback; None without one.

    In a container, the path has directories above the repository's.
    """
    parts = PurePosixPath(bisection.path).parts[-6:]
    for start_at in range(len(parts)):
        path = "/".join(parts[start_at:]).lstrip("/")
        if not path or (after := await clients.git.read(bisection.url, bisection.bad, path)) is None:
            continue
        before = await clients.git.read(bisection.url, bisection.good, path) or ""
        return await asyncio.to_thread(_nearest_change, path, before, after, bisection.row)
    return None


def _nearest_change(path: str, before: str, after: str, row: int) -> tuple[str, str] | None:
    """Return the change nearest to a line of the later version."""
    old, new = before.splitlines(), after.splitlines()
    above = _same(old, new)
    below = _same(old[above:][::-1], new[above:][::-1])
    old, new = old[above : len(old) - below], new[above : len(new) - below]
    if max(len(old), len(new)) > MAX_DIFF:
        return None
    found: list[tuple[int, str]] = []
    for kind, low, _, start_at, end_at in SequenceMatcher(None, old, new).get_opcodes():
        if kind != "equal":
            added = [(above + number + 1, f"+{new[number]}") for number in range(start_at, end_at)]
            found += added or [(above + start_at + 1, f"-{old[low]}")]
    if not found:
        return None
    place, line = min(found, key=lambda each: abs(each[0] - row))
    return f"{path}:{place}", line[:MAX_LINE]


def _same(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many lines are the same at the beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((number for number, (one, other) in pairs if one != other), min(len(old), len(new)))
