"""What every door may use: the queue and the records, never the cluster."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from bot.config import Config
from bot.logs import about
from bot.models import Ask
from bot.queue import Queue
from bot.store import Store

log = logging.getLogger(__name__)

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
        with about(sweep_id):
            async with asyncio.timeout(PATIENCE):
                await self.store.ask(sweep_id, ask)
                await self.queue.add(sweep_id)
            log.info("%s asks to %s it", ask.user, ask.act)
