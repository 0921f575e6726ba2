"""Remember what rarely changes and is expensive to query, such as scrape intervals and GPU models."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")

SAMPLE_MAX_AGE = timedelta(minutes=10)


class Recent(Generic[T]):
    def __init__(self) -> None:
        self._known: tuple[datetime, T] | None = None

    async def get(self, at: datetime, measure: Callable[[], Awaitable[T]]) -> T:
        """Return what was measured within SAMPLE_MAX_AGE before `at`, or else measure it."""
        if self._known is None or not timedelta(0) <= at - self._known[0] < SAMPLE_MAX_AGE:
            self._known = at, await measure()
        return self._known[1]

    async def renew(self, at: datetime, measure: Callable[[], Awaitable[T]]) -> T:
        """Measure, unless that was done for `at`."""
        if self._known is None or self._known[0] != at:
            self._known = at, await measure()
        return self._known[1]
