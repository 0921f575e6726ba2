"""What running trials report while they run, and how long the sweep still takes."""

from dataclasses import replace
from datetime import timedelta

from bot.core.record import Phase, SweepRecord
from bot.sweep.clients import SweepClients
from bot.sweep.features.live_values.decide import follow, lines
from bot.sweep.model.feature import Feature, Moment, Step
from bot.sweep.model.observation import Observation
from bot.sweep.results.live import PERIOD, SOON
from bot.sweep.results.log_curves import log_query

NEW = timedelta(minutes=15)  # a training that has no value by then is read once a minute


async def observe(sweep: SweepRecord, seen: Observation, clients: SweepClients) -> Observation:
    """Add the last reading. Nothing is read unless a trial runs."""
    if sweep.phase is not Phase.RUNNING or sweep.plan is None or not seen.running:
        return seen
    query = log_query(sweep.plan, seen.pods, {trial.name for trial in seen.trials})
    started = {pod.job: pod.running_since for pod in seen.pods if pod.running_since}
    new = {trial for trial, at in started.items() if trial in seen.running and clients.now() - at < NEW}
    query = query and replace(query, cluster=clients.trials, new=frozenset(new))
    reading = await clients.live.read(sweep.id, sweep.plan, seen.wanted_curves or _none, query)
    return replace(seen, reading=reading).again_in(SOON if query and new - reading.latest.keys() else PERIOD)


def _none(_: object) -> set[str]:
    return set()


FEATURE = Feature(
    name="live_values",
    observe=observe,
    steps=(Step(at=Moment.LIVE_VALUES, decide=follow),),
    running=lines,
)
