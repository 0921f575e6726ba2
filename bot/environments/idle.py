"""Decide what follows from a measurement: a warning, its end, or a stop. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from bot.config.environments import EnvironmentIdle
from bot.environments.activity import Activity, Use
from bot.environments.record import EnvironmentRecord, Wanted

TICK = timedelta(minutes=5)
MAX_GAP = 3 * TICK  # between two measurements; longer: the bot was away, and what happened is unknown


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """Since when one start of an environment has been idle in every measurement."""

    uid: str
    starts: int
    since: datetime | None  # None: in use, or unknown
    at: datetime  # of the last measurement


class Step(StrEnum):
    NONE = "none"
    WARN = "warn"
    UNWARN = "unwarn"  # it is in use again, kept, or unknown
    STOP = "stop"


def observe(before: Quiet | None, uid: str, starts: int, activity: Activity) -> Quiet:
    """Return since when it has been idle. Another start, a gap, use, or an unknown value begins again."""
    same = before is not None and (before.uid, before.starts) == (uid, starts)
    continues = before is not None and same and activity.at - before.at <= MAX_GAP
    since = before.since if before and continues else None
    idle = activity.use is Use.IDLE
    return Quiet(uid=uid, starts=starts, since=(since or activity.at) if idle else None, at=activity.at)


def decide(record: EnvironmentRecord, quiet: Quiet, settings: EnvironmentIdle) -> Step:
    """`quiet` is of a measurement just made."""
    kept = record.keep_until is not None and record.keep_until > quiet.at
    over = quiet.since is not None and quiet.at - quiet.since >= timedelta(hours=settings.hours)
    if record.wanted is not Wanted.RUNNING:
        return Step.NONE
    if kept or not over or not settings.hours:
        return Step.UNWARN if record.warned_at else Step.NONE
    if record.warned_at is None:
        return Step.WARN
    due = record.stop_at is not None and quiet.at >= record.stop_at
    return Step.STOP if settings.stop and due else Step.NONE


def warned(
    record: EnvironmentRecord, quiet: Quiet, settings: EnvironmentIdle, what: str
) -> EnvironmentRecord:
    """Return the record after Slack has accepted the warning."""
    stop_at = quiet.at + timedelta(minutes=settings.notice_minutes) if settings.stop else None
    return replace(record, warned_at=quiet.at, idle_since=quiet.since, measured=what, stop_at=stop_at)


def unwarned(record: EnvironmentRecord) -> EnvironmentRecord:
    return replace(record, warned_at=None, idle_since=None, measured="", stop_at=None)
