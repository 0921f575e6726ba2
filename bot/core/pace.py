"""What the leader measures for sweeps that follow free GPUs, or wait for nodes. Pure."""

from dataclasses import dataclass
from datetime import datetime

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
