"""What every door may use: the queue and the records, never the cluster."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from bot.config import Config
from bot.models import Ask
from bot.queue import Queue
from bot.store import Store

UNREACHABLE = "My queue does not answer right now, so I can't promise anything. Please try again in a minute."
PATIENCE = 2.0  # seconds; Slack gives a door three


@dataclass(frozen=True, kw_only=True)
class Door:
    store: Store
    queue: Queue
    config: Config
    namespace: str
    now: Callable[[], datetime]

    async def ask(self, sweep_id: str, ask: Ask) -> None:
        """Into the sweep's mailbox, and a turn for it; durably."""
        async with asyncio.timeout(PATIENCE):
            await self.store.ask(sweep_id, ask)
            await self.queue.add(sweep_id)
