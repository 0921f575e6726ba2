"""A short form of a sweep's record for lists and name look-ups, which read hundreds at once. Pure."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import TypeAdapter

from bot.core.gangs import is_gang, waits_for_nodes
from bot.core.record import Phase, SweepRecord


@dataclass(frozen=True, kw_only=True)
class SweepSummary:
    id: str
    user: str  # the owner's Slack id
    user_name: str = ""
    channel: str
    thread: str = ""  # ts of the parent message; "" before it is posted
    phase: Phase
    trials: int = 0  # maximum; 0 before it is submitted
    finished: int = 0
    running: int = 0
    best: float | None = None
    unsent: int = 0  # messages that Slack hasn't accepted
    gang: bool = False  # its trials need several nodes at once, and no queue admits them
    waits_for_nodes: bool = False  # before its trials start
    gated: bool = False  # only the first trial can run
    queued: bool = False  # a queue of Kueue admits its trials

    @property
    def live(self) -> bool:
        return not self.phase.final


_SUMMARY: TypeAdapter[SweepSummary] = TypeAdapter(SweepSummary)


def summary_of(sweep: SweepRecord) -> SweepSummary:
    progress, requester = sweep.progress, sweep.requester
    return SweepSummary(
        id=sweep.id,
        user=requester.user,
        user_name=requester.user_name,
        channel=requester.channel,
        thread=sweep.thread or "",
        phase=sweep.phase,
        trials=sweep.plan.space.max_trials if sweep.plan and sweep.submitted else 0,
        finished=progress.finished,
        running=progress.running,
        best=progress.best.value if progress.best else None,
        unsent=len(sweep.outbox),
        gang=is_gang(sweep),
        gated=sweep.gated,
        queued=bool(sweep.queue_and_priority[0]),
        waits_for_nodes=bool(sweep.start_wait) and waits_for_nodes(sweep),
    )


def dump(entry: SweepSummary) -> str:
    return _SUMMARY.dump_json(entry, exclude_defaults=True).decode()


def load(texts: Iterable[bytes | str]) -> list[SweepSummary]:
    """Parse the entries, skipping unreadable ones: during an update, a newer Sweepbot's are among them."""
    found = []
    for text in texts:
        with contextlib.suppress(ValueError):
            found.append(_SUMMARY.validate_json(text))
    return found
