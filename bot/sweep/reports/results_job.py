"""Read a sweep's results for the HTTP API: the job of one work item."""

import asyncio

from bot.sweep.clients import SweepClients
from bot.sweep.reports.end_results import posted_results, stored_results
from bot.sweep.results.models import dump
from bot.sweep.results.requested import RequestedResults


async def read_results(sweep_id: str, clients: SweepClients, requested: RequestedResults) -> None:
    """Raises ApiError and UnreachableError if a retry can help."""
    sweep = await clients.store.get(sweep_id)
    found = await (posted_results(sweep, clients) if sweep else stored_results(sweep_id, clients))
    await requested.put(sweep_id, await asyncio.to_thread(dump, found) if found else b"")
