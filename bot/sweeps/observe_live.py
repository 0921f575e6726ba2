"""Read what running trials report, from MLflow."""

from dataclasses import replace

from bot.clients import Clients
from bot.core.record import Phase, SweepRecord
from bot.results.live import PERIOD
from bot.sweeps.early_stopping import wanted_curves
from bot.sweeps.observation import Observation


async def observe_live(sweep: SweepRecord, seen: Observation, clients: Clients) -> Observation:
    """Add the last reading. Nothing is read unless a trial runs."""
    if sweep.phase is not Phase.RUNNING or sweep.plan is None or not seen.running:
        return seen
    reading = await clients.live.read(sweep.id, sweep.plan, wanted_curves(sweep, seen))
    return replace(seen, reading=reading, observe_again_in=min(PERIOD, seen.observe_again_in or PERIOD))
