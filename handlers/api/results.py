"""Answer with a sweep's trials: a worker reads them, because this process has no access to the cluster."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from bot.core.errors import UserError
from bot.core.ids import SWEEP_ID
from bot.platform.storage.sweeps import Store
from bot.sweep.results.csv_file import csv_text, ordered
from bot.sweep.results.models import SweepResults, TrialResult, load
from bot.sweep.results.requested import RequestedResults
from bot.sweep.results.table import STATES
from handlers.api.sweeps import UNKNOWN
from handlers.context import ACK_TIMEOUT

WORKER_TIMEOUT = 10.0  # seconds for a worker to read them
POLL_SECONDS = 0.1
LATE = (
    f"No worker has read the results within {WORKER_TIMEOUT:g} s: none is free, or the cluster doesn't "
    "answer. Try again in a minute."
)


class ResultsReader:
    def __init__(self, store: Store, requested: RequestedResults) -> None:
        self._store, self._requested = store, requested

    async def respond(self, sweep_id: str, options: Mapping[str, str]) -> Response:
        """Return the response. Raises HTTPException, UserError, RedisError, TimeoutError."""
        if options.keys() - {"format"} or (kind := options.get("format", "json")) not in {"json", "csv"}:
            raise UserError("Available: format=json, format=csv.")
        stored = await self._read(sweep_id) if SWEEP_ID.fullmatch(sweep_id) else b""
        if not stored:
            await self._check_known(sweep_id)
        results = await asyncio.to_thread(load, stored) if stored else None
        if kind == "csv":
            text = await asyncio.to_thread(csv_text, results) if results else ""
            return Response(text, media_type="text/csv")
        return await asyncio.to_thread(_as_json, results)

    async def _read(self, sweep_id: str) -> bytes:
        async with asyncio.timeout(ACK_TIMEOUT):
            found = await self._requested.get(sweep_id)
            if found is None:
                await self._requested.request(sweep_id)
        try:
            async with asyncio.timeout(WORKER_TIMEOUT):
                while found is None:
                    await asyncio.sleep(POLL_SECONDS)
                    found = await self._requested.get(sweep_id)
        except TimeoutError:
            raise HTTPException(503, LATE, {"Retry-After": "60"}) from None
        return found

    async def _check_known(self, sweep_id: str) -> None:
        async with asyncio.timeout(ACK_TIMEOUT):
            if not SWEEP_ID.fullmatch(sweep_id) or await self._store.get(sweep_id) is None:
                raise HTTPException(404, UNKNOWN)


def _as_json(results: SweepResults | None) -> Response:
    return JSONResponse({"trials": [_trial(each) for each in ordered(results)] if results else []})


def _trial(trial: TrialResult) -> dict[str, Any]:
    return {
        "name": trial.name,
        "state": STATES[trial.state],
        "value": trial.value,
        "parameters": trial.parameters,
        "started": trial.started.isoformat() if trial.started else None,
        "ended": trial.ended.isoformat() if trial.ended else None,
    }
