"""Let callers share a read for a while: a list of a large cluster's pods is tens of megabytes."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
RETENTION = 30.0  # seconds


class SharedReads:
    """`retention`: seconds for which a result is returned again. A failed read isn't kept."""

    def __init__(self, retention: float = RETENTION) -> None:
        self._retention = retention
        self._reads: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, what: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the latest read of `what`, or of a new one. Raises what it raises.

        A caller that is cancelled doesn't end it for the others.
        """
        if what not in self._reads:
            task = asyncio.ensure_future(read())
            self._reads[what] = task
            task.add_done_callback(lambda _: self._keep(what, task))
        found: T = await asyncio.shield(self._reads[what])
        return found

    def forget(self, what: Hashable) -> None:
        self._reads.pop(what, None)

    def _keep(self, what: Hashable, task: asyncio.Future[Any]) -> None:
        # exception() also takes the error of a read whose callers are all gone, which asyncio would log.
        if task.cancelled() or task.exception():
            self._drop(what, task)
        else:
            asyncio.get_running_loop().call_later(self._retention, self._drop, what, task)

    def _drop(self, what: Hashable, task: asyncio.Future[Any]) -> None:
        if self._reads.get(what) is task:
            del self._reads[what]
