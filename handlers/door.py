"""What every door may use: the queue and the records, never the cluster."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from bot.config import Config
from bot.models import Ask
from bot.queue import Queue
from bot.store import Store

UNREACHABLE = "I can't reach my queue right now, so nothing was done. Please try again in a minute."


@dataclass(frozen=True, kw_only=True)
class Door:
    store: Store
    queue: Queue
    config: Config
    namespace: str
    now: Callable[[], datetime]

    async def ask(self, sweep_id: str, ask: Ask) -> None:
        """Into the sweep's mailbox, and a turn for it; durably."""
        await self.store.ask(sweep_id, ask)
        await self.queue.add(sweep_id)
