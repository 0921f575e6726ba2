"""Katib on one machine: webhooks, controllers, seven algorithms, the TensorFlowEvent collector.

It meets the rest of the local world in the object store only, and answers as the real Katib was recorded.
"""

import asyncio
import contextlib
from functools import partial

from local.katib import pods, webhooks
from local.katib.collector import MetricsStore
from local.katib.controller import Controller
from local.kubernetes.store import Store


class Katib:
    """Refuses from the moment it is made; works from `start` to `close`.

    `builtins` are the containers it brings along, by a part of their image's name, for the kubelet to run.
    """

    def __init__(self, store: Store) -> None:
        self.metrics = MetricsStore()
        self.builtins = {"tfevent-metrics-collector": self.metrics.collect}
        self._controller = Controller(store, self.metrics)
        self._task: asyncio.Task[None] | None = None
        store.admission("Experiment", partial(webhooks.admit, store))
        store.admission("Pod", partial(pods.admit, store))

    def start(self) -> None:
        self._task = asyncio.create_task(self._controller.run())

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
