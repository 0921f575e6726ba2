"""Judge whether an environment is in use, and decide what follows: a warning, its end, or a stop. Pure.

Its GPUs, its server, and its CPU count together, because each alone misleads: a training in a terminal is no
kernel, a silent epoch moves no `last_activity`, and a person who reads uses no GPU. What can't be measured is
unknown, and unknown is never idle.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from bot.measure.gpus.models import BUSY, PodUse
from bot.platform.config.environments import EnvironmentIdle
from bot.platform.slack.mrkdwn import local_time
from bot.text.number_format import percent
from bot.workspaces.environments.record import EnvironmentRecord, Wanted
from k8s.objects import Manifest
from k8s.quantities import any_amount

TICK = timedelta(minutes=5)
MAX_GAP = 3 * TICK  # between two measurements; longer: the bot was away, and what happened is unknown

RECENT = timedelta(minutes=10)  # an activity of the server counts as use for that long
IDLE_CORES = 0.2


class Use(StrEnum):
    BUSY = "busy"
    IDLE = "idle"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class ServerUse:
    """What Jupyter or code-server reports."""

    busy: bool | None  # a kernel is executing; None: code-server has no kernels
    last: datetime  # activity: of a kernel or a terminal, or of a browser with code-server


@dataclass(frozen=True, kw_only=True)
class Activity:
    """One measurement; None is unknown."""

    at: datetime
    gpu: float | None  # peak utilization of all GPUs in half an hour; 0.0 without GPUs
    server: ServerUse | None
    cpu: float | None  # cores

    @property
    def use(self) -> Use:
        if self.gpu is None or self.server is None or self.cpu is None:
            return Use.UNKNOWN
        recent = bool(self.server.busy) or self.at - self.server.last < RECENT
        return Use.BUSY if self.gpu >= BUSY or recent or self.cpu >= IDLE_CORES else Use.IDLE

    def described(self, gpus: int) -> str:
        """Return what was measured, for a warning."""
        gpu = [f"GPU max {percent(self.gpu or 0, 1)} in 30 min"] if gpus else []
        last = [f"last used {local_time(self.server.last)}"] if self.server else []
        kernels = ["no kernel busy"] if self.server and self.server.busy is not None else []
        return ", ".join([*gpu, *kernels, *last, f"CPU {self.cpu or 0:.2f} cores"])


def gpu_peak(pod: PodUse | None, gpus: int) -> float | None:
    """Return the highest peak of the pod's GPUs; None unless all have enough samples."""
    if not gpus:
        return 0.0
    peaks = [gpu.peak for gpu in pod.gpus if gpu.peak is not None] if pod else []
    return max(peaks) if pod and len(peaks) == len(pod.gpus) >= gpus else None


def cores(metrics: Manifest) -> float | None:
    """Return the CPU of a pod in metrics.k8s.io; None if that of a container is unknown."""
    try:
        found = [float(any_amount(each["usage"]["cpu"])) for each in metrics.get("containers") or ()]
    except (KeyError, TypeError, ValueError):
        return None
    return sum(found) if found else None


def jupyter_use(status: str, kernels: str) -> ServerUse | None:
    """Read the answers of /api/status and /api/kernels; None if they aren't Jupyter's.

    They are the user's own program's: anything else than the documented form is unknown.
    """
    try:
        last = datetime.fromisoformat(json.loads(status)["last_activity"])
        busy = any(each["execution_state"] == "busy" for each in json.loads(kernels))
        return ServerUse(busy=busy, last=last.astimezone(UTC))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def code_server_use(health: str) -> ServerUse | None:
    """Read the answer of /healthz; None before the first browser, and if it isn't code-server's."""
    try:
        heartbeat = int(json.loads(health)["lastHeartbeat"])
        return ServerUse(busy=None, last=datetime.fromtimestamp(heartbeat / 1000, UTC)) if heartbeat else None
    except (ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
        return None


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
