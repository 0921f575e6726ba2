"""The outside systems a turn may speak with, handed around as one value."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.config import Config
from bot.git import Git
from bot.queue import Queue
from bot.results import Results
from bot.settings import Settings
from bot.slack import Slack
from bot.store import Store
from k8s.cluster import Cluster
from k8s.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Outside:
    store: Store
    cluster: Cluster
    registry: Registry
    git: Git
    slack: Slack
    results: Results
    settings: Settings
    config: Config
    queue: Queue
    now: Callable[[], datetime]

    async def wake(self, sweep_id: str, *, after: timedelta = timedelta(0)) -> None:
        """Ask for a turn of a sweep, once however often asked."""
        await self.queue.add_after(sweep_id, after.total_seconds())
