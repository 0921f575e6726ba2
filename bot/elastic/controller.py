"""Let one worker scale elastic Deployments, under a lease."""

import asyncio

from redis.asyncio import Redis

from bot.clients import Clients
from bot.elastic.records import ElasticRecords
from bot.elastic.reporter import Reporter
from bot.elastic.scaler import Scaler
from bot.storage.leader import lead

LEASE = 15.0  # seconds
CONFIG_INTERVAL = 10.0  # seconds until a Deployment that was configured meanwhile is scaled


class ElasticController:
    def __init__(self, redis: Redis, clients: Clients) -> None:
        self._redis, self._clients = redis, clients

    async def run(self) -> None:
        """Lead or wait until cancelled; then another worker takes over. Unconfigured, it needs no lease."""
        while not self._clients.config.elastic:  # noqa: ASYNC110 - polls a file
            await asyncio.sleep(CONFIG_INTERVAL)
        while True:
            await lead(self._redis, "sweepbot:elastic", LEASE, self._scale)

    async def _scale(self) -> None:
        records = ElasticRecords(self._clients)
        scaler = Scaler(self._clients, records)
        async with asyncio.TaskGroup() as group:
            group.create_task(scaler.run())
            group.create_task(Reporter(self._clients, records, scaler).run())
