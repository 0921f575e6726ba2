"""Answer with a sweep's trials: a worker reads them, because this process has no access to the cluster."""

import asyncio
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.responses import Response

from bot.core.errors import UserError
from bot.core.ids import SWEEP_ID
from bot.platform.storage.sweeps import Store
from bot.sweep.results.requested import RequestedResults
from handlers.api.sweeps import UNKNOWN, current
from handlers.context import ACK_TIMEOUT

WORKER_TIMEOUT = 10.0  # seconds for a worker to read them
POLL_SECONDS = 0.1
EMPTY = {"json": b'{"trials": []}', "csv": b""}  # of a sweep without trials, by format
LATE = (
    f"No worker has read the results within {WORKER_TIMEOUT:g} s: none is free, or the cluster doesn't "
    "answer. Try again in a minute."
)


class ResultsReader:
    def __init__(self, store: Store, requested: RequestedResults) -> None:
        self._store, self._requested = store, requested

    async def respond(self, sweep_id: str, options: Mapping[str, str]) -> Response:
        """Return the response. Raises HTTPException, UserError, RedisError, TimeoutError."""
        if options.keys() - {"format"} or (kind := options.get("format", "json")) not in EMPTY:
            raise UserError("Available: format=json, format=csv.")
        async with asyncio.timeout(ACK_TIMEOUT):
            sweep = await current(self._store, sweep_id)
        found = (
            await self._read(sweep.id if sweep else sweep_id, kind) if SWEEP_ID.fullmatch(sweep_id) else b""
        )
        if not (found or sweep):
            raise HTTPException(404, UNKNOWN)
        return Response(found or EMPTY[kind], media_type="text/csv" if kind == "csv" else "application/json")

    async def _read(self, sweep_id: str, kind: str) -> bytes:
        async with asyncio.timeout(ACK_TIMEOUT):
            found = await self._requested.get(sweep_id, kind)
            if found is None:
                await self._requested.request(sweep_id)
        try:
            async with asyncio.timeout(WORKER_TIMEOUT):
                while found is None:
                    await asyncio.sleep(POLL_SECONDS)
                    found = await self._requested.get(sweep_id, kind)
        except TimeoutError:
            raise HTTPException(503, LATE, {"Retry-After": "60"}) from None
        return found
