"""When GPUs count as idle."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class IdleThresholds:
    """When GPUs that do nothing are worth a word. 0: never."""

    idle_minutes: float = 30  # without any work; again at twice and four times that
    first_use_minutes: float = 30  # since the start, of GPUs that never did anything; 45 where data is large
    low_percent: float = 15  # on average of two hours
    stuck_minutes: float = 30  # at work all the time, and without a line in the log
