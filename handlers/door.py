"""What every door may use: the queue and the records, never the cluster."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from bot.config import Config
from bot.identity import candidates
from bot.logs import about
from bot.models import Ask, Asker, SweepRecord, SweepRequest
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

    async def take(self, request: SweepRequest, asker: Asker, delivery: str) -> SweepRecord:
        """A new sweep, durably, before Slack hears anything. A repeated delivery is the same sweep."""
        now = self.now()

        def named(sweep_id: str) -> SweepRecord:
            return SweepRecord(
                id=sweep_id,
                namespace=self.namespace,
                request=request,
                asker=asker,
                delivery=delivery,
                created=now,
                since=now,
            )

        ids = candidates(request.name or request.space, delivery)
        async with asyncio.timeout(PATIENCE):
            record, _ = await self.store.create(named, ids, delivery)
            await self.queue.add(record.id)
        with about(record.id):
            log.info("%s asks for it in %s", asker.user, asker.channel)
        return record
