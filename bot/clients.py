"""The outside systems a turn may speak with, handed around as one value."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from bot.config.policy import Config
from bot.config.settings import Settings
from bot.core.masking import Mask
from bot.core.terminal import as_shown
from bot.core.work_item import WorkItem
from bot.registry.client import Registry
from bot.repos.git import Git
from bot.results.mlflow import MlflowExperiments
from bot.slack.client import Slack
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue
from k8s.client import KubernetesClient
from k8s.errors import ApiError, UnreachableError

LOG_LINES = 20
WHOLE_LOG = 10_000  # lines; what is longer is read where it lies
LOG_CHARACTERS = 8000  # for so many: a line can be a whole progress bar
LOG_PATIENCE = 5.0  # seconds


@dataclass(kw_only=True)
class Clients:
    """`config` follows what is set up in Slack (bot.channels.store)."""

    store: Store
    cluster: KubernetesClient
    registry: Registry
    git: Git
    slack: Slack
    results: MlflowExperiments
    settings: Settings
    config: Config
    queue: Queue
    now: Callable[[], datetime]

    @cached_property
    def mask(self) -> Mask:
        """Hides this installation's secrets, and whatever looks like one, in what the outside says."""
        return Mask(self.settings.secrets())

    async def wake(self, sweep_id: str, *, after: timedelta = timedelta(0)) -> None:
        """Ask for a turn of a sweep, once however often asked."""
        await self.queue.add_after(WorkItem.sweep(sweep_id), after.total_seconds())

    async def tail(
        self, namespace: str, pod: str, container: str, lines: int = LOG_LINES, *, previous: bool = False
    ) -> str:
        """The last lines, masked, as far as they can be read: a dead kubelet must not hide a trial's end.

        Masked before they are cut, or half a secret might stay; in a thread, for a log may have 1 MiB.
        """
        try:
            async with asyncio.timeout(LOG_PATIENCE):
                log = await self.cluster.log(namespace, pod, container, tail=lines, previous=previous)
        except (ApiError, UnreachableError, TimeoutError) as error:
            return self.mask(f"(its log can't be read: {error or 'its node does not answer'})")
        shown = await asyncio.to_thread(lambda: self.mask(as_shown(log)))
        return shown.strip()[-LOG_CHARACTERS * lines // LOG_LINES :]
