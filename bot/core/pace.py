"""`parallel=auto`: what is measured for a sweep, and the number of parallel trials that follows. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from k8s.objects import Manifest


@dataclass(frozen=True, kw_only=True)
class CapacityRequest:
    """What a sweep's next trials need: workers register it, and the leader measures free GPUs for it."""

    sweep: str
    namespace: str
    queue: str = ""  # Kueue's LocalQueue; "" if Sweepbot sets none
    gpus: int  # of one pod
    resource: str  # that they are requested as
    pods: int = 1  # of one trial
    pod: Manifest  # spec of its pods: what decides on which nodes they run
    expects: int = 0  # pods at once, with those that exist: others leave them their GPUs
    started: bool = False  # of a sweep that can wait for nodes: its trials can start
    since: datetime | None = None  # when it began to wait for nodes; None: it doesn't
    auto: bool = True  # False: a started one isn't measured
    at: datetime  # an old one is dropped


@dataclass(frozen=True, kw_only=True)
class FreeCapacity:
    """What the leader measured for one sweep."""

    at: datetime
    gpus: int  # of one trial
    trials: int | None  # more that could start now; None: unknown
    steady: int = 0  # the same, but no more than in the measurement before
    waiting: int = 0  # its own trials that have waited for GPUs for a minute or longer
    to_yield: int = 0  # its trials that would release the GPUs that others have lacked for as long
    who: str = ""  # of these others, who waits for the most: "team nlp", "sweep lr-brave-otter"
    requested: int = 0  # GPUs that they wait for
    beside: tuple[str, ...] = ()  # sweeps that had their nodes set aside before


class PaceChange(StrEnum):
    """Why the number of parallel trials changed last."""

    NONE = ""
    GREW = "grew"  # more GPUs became free
    YIELDS = "yields"  # other pods wait
    FULL = "full"  # its own trials wait
    LIMITED = "limited"  # by the limits of a person or a team
    UNKNOWN = "unknown"  # nothing is known about free GPUs


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The number of trials that run at once, and why; it stays 1 without `parallel=auto`."""

    target: int = 1
    at: datetime | None = None  # of the last change; None: none so far
    change: PaceChange = PaceChange.NONE
    gpus: int = 0  # that became free, or that `who` waits for
    who: str = ""
