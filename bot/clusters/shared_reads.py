"""Let callers at the same time share one read: a list of a large cluster's pods is tens of megabytes."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class SharedReads:
    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, what: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the read of `what` that is running, or of a new one. Raises what it raises.

        A caller that is cancelled doesn't end it for the others.
        """
        if what not in self._running:
            task = asyncio.ensure_future(read())
            self._running[what] = task
            task.add_done_callback(lambda _: self._running.pop(what))
            task.add_done_callback(_seen)
        found: T = await asyncio.shield(self._running[what])
        return found


def _seen(task: asyncio.Future[Any]) -> None:
    """Take the error of a read whose callers are all gone, which asyncio would log."""
    if not task.cancelled():
        task.exception()
