"""What running trials report while they run, and how long the sweep still takes."""

from dataclasses import replace
from datetime import timedelta

from bot.core.record import ACTIVE, Phase, SweepRecord
from bot.sweep.clients import SweepClients
from bot.sweep.features.live_values.decide import follow, lines
from bot.sweep.model.feature import Feature, Step
from bot.sweep.model.observation import Observation
from bot.sweep.results.live import PERIOD, SOON
from bot.sweep.results.log_curves import log_query

NEW = timedelta(minutes=15)  # a training that has no value by then is read once a minute


async def observe(sweep: SweepRecord, seen: Observation, clients: SweepClients) -> Observation:
    """Add the last reading. Nothing is read unless a trial runs."""
    if sweep.phase is not Phase.RUNNING or sweep.plan is None or not seen.running:
        return seen
    query = log_query(sweep.plan, seen.pods, seen.trial_names)
    if query:
        since = clients.now() - NEW
        started = (pod.job for pod in seen.pods if pod.running_since and pod.running_since > since)
        query = replace(query, cluster=clients.trials, new=seen.running.intersection(started))
    reading = await clients.live.read(sweep.id, sweep.plan, seen.wanted_curves or _none, query)
    waits = query is not None and bool(query.new - reading.latest.keys())
    return replace(seen, reading=reading).again_in(SOON if waits else PERIOD)


def _none(_: object) -> set[str]:
    return set()


FEATURE = Feature(name="live_values", observe=observe, running=lines)
STEP = Step(phases=frozenset(ACTIVE), decide=follow)
