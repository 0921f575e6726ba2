"""When the API server is away: one probe finds out that it is back, and all who wait go on at once."""

import asyncio
from collections.abc import Callable
from time import monotonic

from k8s.cluster import Cluster

PAUSE = 1.0  # seconds between two probes


class Outage:
    """`on_over` is called once at the end of each."""

    def __init__(self, cluster: Cluster, on_over: Callable[[], None]) -> None:
        self._cluster, self._on_over = cluster, on_over
        self._probing = asyncio.Lock()
        self._over = 0.0  # when the last one ended

    async def over(self) -> bool:
        """Wait until the server answers. False: it answers at the first probe.

        However many wait, one of them probes.
        """
        asked = monotonic()
        async with self._probing:
            if self._over >= asked:
                return True
            if await self._cluster.answers():
                return False
            while not await self._cluster.answers():  # noqa: ASYNC110 - facts of another process
                await asyncio.sleep(PAUSE)
            self._over = monotonic()
        self._on_over()
        return True
