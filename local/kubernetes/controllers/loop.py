"""Run a controller in the background."""

import asyncio
import contextlib
from abc import ABC, abstractmethod


class ControllerLoop(ABC):
    """Runs `_run` of its subclass from `start` to `close`."""

    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop. Raises the error that stopped the controller, if any."""
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @abstractmethod
    async def _run(self) -> None: ...
