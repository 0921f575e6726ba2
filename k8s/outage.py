"""When the API server is away: one probe finds out that it is back, and all who wait go on at once."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from k8s.client import KubernetesClient
from k8s.errors import ApiError, UnreachableError

PAUSE = 1.0  # seconds between two probes
LONGEST = 30.0  # seconds after which whoever waits may try all the same


def away(error: Exception) -> bool:
    """Return whether a call failed as it does while the server, or etcd behind it, is away."""
    return isinstance(error, UnreachableError) or (isinstance(error, ApiError) and error.outage)


class Outage:
    """`on_over` is called once at the end of each."""

    def __init__(self, cluster: KubernetesClient, on_over: Callable[[], None]) -> None:
        self._cluster, self._on_over = cluster, on_over
        self._probing = asyncio.Lock()
        self._away = False
        self._over = 0.0  # when the last one ended

    async def over(self) -> bool:
        """Wait until the server is ready. False: it was at the first probe, or is not within 30 s.

        However many wait, one of them probes.
        """
        asked = monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST), self._probing:
                return self._over >= asked or await self._probed()
        return False

    async def _probed(self) -> bool:
        while not await self._cluster.is_ready():
            self._away = True
            await asyncio.sleep(PAUSE)
        if not self._away:
            return False
        self._away, self._over = False, monotonic()
        self._on_over()
        return True
