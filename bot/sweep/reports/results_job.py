"""Read a sweep's results for the HTTP API: the job of one work item."""

import asyncio
import json
import logging
from typing import Any

from bot.sweep.clients import SweepClients
from bot.sweep.reports.end_results import posted_results, stored_results
from bot.sweep.results.csv_file import csv_text, ordered
from bot.sweep.results.models import SweepResults, TrialResult
from bot.sweep.results.requested import NO_RESULTS, RequestedResults
from bot.sweep.results.table import STATES
from k8s.api.errors import ApiError, UnreachableError

log = logging.getLogger(__name__)


async def read_results(sweep_id: str, clients: SweepClients, requested: RequestedResults) -> None:
    """Keep the results, or nothing if the cluster doesn't answer: the caller no longer waits for a retry."""
    sweep = await clients.store.get(sweep_id)
    try:
        found = await (posted_results(sweep, clients) if sweep else stored_results(sweep_id, clients))
    except (ApiError, UnreachableError) as error:
        log.warning("can't read the results of %s: %s", sweep_id, error)
        return
    texts = await asyncio.to_thread(_texts, found) if found else NO_RESULTS
    await requested.put(sweep_id, texts)


def _texts(results: SweepResults) -> dict[str, bytes]:
    trials = {"trials": [_trial(each) for each in ordered(results)]}
    return {"json": json.dumps(trials, allow_nan=False).encode(), "csv": csv_text(results).encode()}


def _trial(trial: TrialResult) -> dict[str, Any]:
    return {
        "name": trial.name,
        "state": STATES[trial.state],
        "value": trial.value,
        "parameters": trial.parameters,
        "started": trial.started.isoformat() if trial.started else None,
        "ended": trial.ended.isoformat() if trial.ended else None,
    }
