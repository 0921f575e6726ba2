"""How long to wait before a failed call is repeated: a declared value for each system that is called.

Each stands beside its calls, and is named RETRY or ends in _RETRY. Where a system says how long to wait
(Retry-After of Slack and the API server), its word counts. A work item whose calls fail is repeated by the
queue (`bot.platform.storage.work_queue`): so Slack, git, and the registry need no policy of their own.
"""

import math
import random
from dataclasses import dataclass
from datetime import timedelta

MAX_POWER = 64  # of a factor: later ones would leave the range of floats


@dataclass(frozen=True, kw_only=True)
class Retry:
    """A policy. The defaults wait equally long each time, and never give up.

    Args:
        base: seconds after the first failure.
        factor: by which each further failure in a row lengthens them.
        max: seconds at most.
        jitter: the share of a delay that can be left out, at random: callers that failed together must not
            call again together.
        attempts: after so many failures in a row, the caller gives up; None: never.
    """

    base: float
    factor: float = 1.0
    max: float = math.inf
    jitter: float = 0.0
    attempts: int | None = None

    def seconds(self, failures: int = 1) -> float:
        """Return the delay after so many failures in a row."""
        longest = self.base * self.factor ** min(failures - 1, MAX_POWER)
        return min(longest, self.max) * self.share()

    def delay(self, failures: int = 1) -> timedelta:
        """Return the same as `seconds`."""
        return timedelta(seconds=self.seconds(failures))

    def share(self) -> float:
        """Return which share of the next delay is waited for."""
        return random.uniform(1 - self.jitter, 1)  # noqa: S311 - spreads load, guards nothing

    def exhausted(self, failures: int) -> bool:
        """Return whether the caller gives up after so many failures in a row."""
        return self.attempts is not None and failures >= self.attempts
