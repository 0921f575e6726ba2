"""The thresholds of idle-GPU warnings, with their defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class IdleThresholds:
    """When to warn about GPUs. 0 disables a warning."""

    idle_minutes: float = 30  # idle; warned again at twice and four times that
    first_use_minutes: float = 30  # since the start, for GPUs that were never used; raise it for large data
    low_percent: float = 15  # mean utilization over two hours
    stuck_minutes: float = 30  # 100% busy without a new line in the log
