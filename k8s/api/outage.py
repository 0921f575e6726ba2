"""Wait for the end of an outage of the API server: one caller probes, and all waiting callers continue."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, UnreachableError

PROBE_INTERVAL = 1.0  # seconds
MAX_WAIT = 30.0  # seconds; then callers retry without a successful probe


def is_outage(error: Exception) -> bool:
    """Return whether a call failed as it does while the API server or its etcd is down."""
    return isinstance(error, UnreachableError) or (isinstance(error, ApiError) and error.outage)


class Outage:
    """`on_over` is called once at the end of each outage."""

    def __init__(self, cluster: KubernetesClient, on_over: Callable[[], None]) -> None:
        self._cluster, self._on_over = cluster, on_over
        self._probing = asyncio.Lock()
        self._is_down = False
        self._over = 0.0  # when the last outage ended

    async def over(self, within: float | None = MAX_WAIT) -> bool:
        """Wait up to `within` seconds until the server is ready. Return whether an outage has ended.

        False if the server was ready at the first probe, or isn't ready in time. Only one waiting caller
        probes.
        """
        called_at = monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(within), self._probing:
                return self._over >= called_at or await self._probed()
        return False

    async def _probed(self) -> bool:
        while not await self._cluster.is_ready():
            self._is_down = True
            await asyncio.sleep(PROBE_INTERVAL)
        if not self._is_down:
            return False
        self._is_down, self._over = False, monotonic()
        self._on_over()
        return True
