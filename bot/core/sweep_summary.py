"""A short form of a sweep's record for lists and name look-ups, which read hundreds at once. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AliasChoices, Field

from bot.core.record import Phase, SweepRecord
from bot.core.stored_format import cached, late_adapter

# A worker of the version before, which can run beside this one during an update, calls them otherwise.
TOGETHER = Field(validation_alias=AliasChoices("starts_together", "gang"))
FIRST_ONLY = Field(validation_alias=AliasChoices("first_only", "gated"))

MAX_CAUSE = 200  # characters
UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)  # when it was created, in the entry of an older version


@dataclass(frozen=True, kw_only=True)
class SweepSummary:
    id: str
    user: str  # the owner's Slack id
    user_name: str = ""
    channel: str
    thread: str = ""  # ts of the parent message; "" before it is posted
    permalink: str = ""  # its URL
    phase: Phase
    created: datetime = UNKNOWN
    cause: str = ""  # of a failed sweep, or one on hold: its beginning
    trials: int = 0  # maximum; 0 before it is submitted
    finished: int = 0
    running: int = 0
    best: float | None = None
    unsent: int = 0  # messages that Slack hasn't accepted
    starts_together: Annotated[bool, TOGETHER] = (
        False  # its trials need several nodes at once, and no queue admits them
    )
    queued: bool = False  # a queue admits its trials
    first_only: Annotated[bool, FIRST_ONLY] = False  # only the first trial can run
    holds: tuple[str, ...] = ()  # what keeps new trials from starting for now
    cpu_only: bool = False  # its trials request no GPUs
    space: str = ""  # "": it runs seeds

    @property
    def live(self) -> bool:
        return not self.phase.final


_SUMMARY = late_adapter(SweepSummary)


def summary_of(sweep: SweepRecord) -> SweepSummary:
    progress, requester = sweep.progress, sweep.requester
    return SweepSummary(
        id=sweep.id,
        user=requester.user,
        user_name=requester.user_name,
        channel=requester.channel,
        thread=sweep.thread or "",
        permalink=sweep.permalink,
        phase=sweep.phase,
        created=sweep.created,
        cause=sweep.reason[:MAX_CAUSE] if sweep.phase in {Phase.FAILED, Phase.HELD} else "",
        trials=sweep.plan.space.max_trials if sweep.plan and sweep.submitted else 0,
        finished=progress.finished,
        running=progress.running,
        best=progress.best.value if progress.best else None,
        unsent=len(sweep.outbox),
        starts_together=sweep.plan is not None and sweep.plan.starts_together,
        queued=bool(sweep.plan and sweep.plan.queue),
        first_only=sweep.first_only,
        holds=sweep.holds,
        cpu_only=sweep.plan is not None and not sweep.plan.gpus,
        space="" if sweep.request.seeds else sweep.request.space,
    )


def dump(entry: SweepSummary) -> str:
    return _SUMMARY.dump_json(entry, exclude_defaults=True).decode()


def load(texts: Iterable[bytes | str]) -> list[SweepSummary]:
    """Parse the entries, skipping unreadable ones: during an update, a newer Sweepbot's are among them."""
    return [entry for text in texts if (entry := cached(_SUMMARY, text))]
