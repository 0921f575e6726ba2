"""The texts of `ps` and `inspect`, for a terminal and for Slack. Pure.

Names, messages of the cluster, and errors come from others: control characters are removed, and callers mask
secrets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.core.sweep_summary import SweepSummary
from bot.operate.causes import find_cause
from bot.operate.facts import ObjectFacts, SweepFacts, phase_name
from bot.operate.words import age
from bot.platform.slack.mrkdwn import MAX_CODE_SIZE, block, plain
from bot.platform.storage.last_errors import LastError
from bot.platform.storage.queue_state import ItemState
from bot.text.wording import counted, fitting, printable, shortened

MAX_LINE = 400  # characters
MAX_OBJECTS = 20
MAX_ROWS = 200


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of `ps`: a sweep, or a job of the queue."""

    item: str
    state: ItemState
    errors: tuple[LastError, ...] = ()
    sweep: SweepSummary | None = None

    @property
    def in_trouble(self) -> bool:
        return bool(self.state.quarantine or self.state.failures)


def inspection(facts: SweepFacts) -> list[str]:
    """Return the lines of `inspect`."""
    cause = find_cause(facts)
    lines = [f"{facts.sweep}: {cause.text}", *([f"Fix: {cause.fix}"] if cause.fix else []), ""]
    lines += [f"{name:<11}{value}" for name, value in _overview(facts)]
    if facts.objects:
        lines += ["", f"Objects in {facts.objects[0].namespace}", *_objects(facts)]
    if facts.errors:
        lines += ["", "Last errors", *(_error(each, facts) for each in facts.errors)]
    if facts.faults:
        lines += ["", "Failing services"]
        lines += [f"  {fault.check}: {fault.text}" for fault in facts.faults]
    return [_clean(line) for line in lines]


def process_list(rows: Sequence[Row], *, has_worker: bool, now: datetime) -> list[str]:
    """Return the lines of `ps`: what is in trouble comes first."""
    held = sum(1 for row in rows if row.state.quarantine)
    failing = sum(1 for row in rows if row.state.failures and not row.state.quarantine)
    sweeps = counted(sum(1 for row in rows if row.sweep), "unfinished sweep")
    workers = "workers running" if has_worker else "no worker is running"
    lines = [f"{sweeps}; {held} quarantined, {failing} failing; {workers}."]
    ordered = sorted(rows, key=lambda row: not row.in_trouble)
    lines += [_row(row, now) for row in ordered[:MAX_ROWS]]
    lines += [f"… and {len(rows) - MAX_ROWS} more"] if len(rows) > MAX_ROWS else []
    return [_clean(line) for line in lines]


def _row(row: Row, now: datetime) -> str:
    if row.state.quarantine:
        note = f"  quarantined: {row.state.quarantine.why}"
    elif row.state.failures:
        last = f": {row.errors[0].service}: {row.errors[0].text}" if row.errors else ""
        note = f"  failed {counted(row.state.failures, 'time')}{last}"
    else:
        note = ""
    unsent = f"  {counted(row.sweep.unsent, 'message')} unsent" if row.sweep and row.sweep.unsent else ""
    phase = phase_name(row.sweep.phase) if row.sweep else "job"
    return f"{row.item:<30} {phase:<10} {queue_words(row.state, now)}{unsent}{note}"


def _overview(facts: SweepFacts) -> Iterable[tuple[str, str]]:
    if record := facts.record:
        unsent = f", {counted(len(record.outbox), 'message')} unsent" if record.outbox else ""
        since = age(record.since, facts.now)
        yield "Record", f"{phase_name(record.phase)} for {since}, version {record.version}{unsent}"
        yield "Owner", f"{record.requester.user_name} ({record.requester.user}) in {record.requester.channel}"
    else:
        yield "Record", "none in Redis"
    yield "ConfigMap", _stored(facts)
    yield "Queue", _queue(facts)
    yield "Workers", "running" if facts.has_worker else "none holds a lease"


def _stored(facts: SweepFacts) -> str:
    if facts.stored:
        return phase_name(facts.stored.phase)
    return f"unknown: {facts.cluster_error}" if facts.cluster_error else "none"


def _queue(facts: SweepFacts) -> str:
    item = facts.item
    failed = f"; failed {counted(item.failures, 'time')} in a row" if item.failures else ""
    started = f"; {counted(item.starts, 'start')} without an end" if item.starts > 1 else ""
    return f"{queue_words(item, facts.now)}{failed}{started}"


def queue_words(item: ItemState, now: datetime) -> str:
    """`delayed, next run in 40 s`."""
    if item.due is None or item.state not in {"ready", "delayed"}:
        return item.state
    left = item.due - now
    return f"{item.state}, next run {f'in {age(left, now)}' if left > timedelta(0) else 'now'}"


def _objects(facts: SweepFacts) -> Iterable[str]:
    shown = sorted(facts.objects, key=_rank)[:MAX_OBJECTS]
    for each in shown:
        gone = f", deletion started {age(each.deleted, facts.now)} ago" if each.deleted else ""
        held = f", finalizers {', '.join(each.finalizers)}" if each.deleted and each.finalizers else ""
        yield f"  {each.kind:<15}{each.name}  {each.state}{gone}{held}"
    if more := len(facts.objects) - len(shown):
        yield f"  … and {more} more"


def _rank(each: ObjectFacts) -> tuple[bool, bool]:
    """Sort what is being deleted or waits before the rest; the order of kinds stays."""
    return (each.deleted is None, not each.waiting)


def _error(error: LastError, facts: SweepFacts) -> str:
    return f"  {age(error.at, facts.now)} ago  {error.service}: {error.text}"


def _clean(line: str) -> str:
    return shortened(printable(line), MAX_LINE)


def lines_mrkdwn(lines: list[str]) -> str:
    """Format for Slack: the cause and the fix as sentences, the rest as a code block."""
    head = lines.index("") if "" in lines else 1
    sentences = "\n".join(plain(line) for line in lines[:head])
    rows = fitting(lines[head:], MAX_CODE_SIZE - 30)  # `block` would keep the end, and trouble comes first
    return "\n".join(filter(None, (sentences, block("\n".join(rows)))))
