"""What running trials report while they run: the lines of the best one and of the time left, how often they
are read, and the warning that MLflow doesn't respond.
"""

import math
from dataclasses import replace
from datetime import datetime, timedelta

from bot.core.events import Event, LiveResult
from bot.core.record import Phase, SweepRecord
from bot.core.space import Goal
from bot.platform.slack.mrkdwn import code
from bot.sweep.clients import SweepClients
from bot.sweep.model.feature import Feature, Moment, Step
from bot.sweep.model.observation import Observation
from bot.sweep.model.time_left import minutes_left
from bot.sweep.results.live import PERIOD, SOON
from bot.sweep.results.log_curves import log_query
from bot.text.wording import time_text

NO_LIVE_VALUES = Event(
    kind="no_live_values",
    text=(
        ":warning: MLflow isn't responding, so live values and curves are missing. The sweep continues, and "
        "live values return when MLflow does."
    ),
)


def follow(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Add the best running trial and the time left; report once that MLflow is unavailable."""
    if not sweep.submitted:
        return sweep
    left = minutes_left(sweep, sweep.progress, seen, now)
    sweep = replace(sweep, progress=replace(sweep.progress, live=_best(sweep, seen), minutes_left=left))
    is_away = seen.reading is not None and seen.reading.is_away
    return sweep.enqueue_once(NO_LIVE_VALUES.kind, NO_LIVE_VALUES) if is_away else sweep


def _best(sweep: SweepRecord, seen: Observation) -> LiveResult | None:
    """Return the running trial whose last value is the best; None if MLflow has none, or doesn't answer."""
    if sweep.plan is None or not sweep.plan.space.names_best or seen.reading is None or seen.reading.failures:
        return None
    sign = -1 if sweep.plan.space.goal is Goal.MAXIMIZE else 1
    latest = {name: seen.reading.latest[name] for name in seen.running if name in seen.reading.latest}
    finite = [(sign * point.value, name) for name, point in latest.items() if math.isfinite(point.value)]
    if not finite:
        return None
    _, name = min(finite)
    return LiveResult(trial=name, value=latest[name].value, step=latest[name].step)


def lines(sweep: SweepRecord) -> list[str]:
    """Return the parent message's lines about running trials."""
    progress, shown = sweep.progress, []
    if sweep.plan and (live := progress.live):
        value = f"{code(sweep.plan.space.metric)} *{live.value:.6g}* at step {live.step:,}"
        shown.append(f"Best running trial: {value} ({code(live.trial)})")
    if progress.minutes_left is not None:
        left = progress.minutes_left  # rounded up to 5
        shown.append(f"Up to {time_text(left)} left" if left > 5 else "Less than 5 min left")
    return shown


NEW = timedelta(minutes=15)  # a training that has no value by then is read once a minute


async def observe(sweep: SweepRecord, seen: Observation, clients: SweepClients) -> Observation:
    """Add the last reading. Nothing is read unless a trial runs."""
    if sweep.phase is not Phase.RUNNING or sweep.plan is None or not seen.running:
        return seen
    query = log_query(sweep.plan, seen.pods, seen.trial_names, clients.trials)
    if query:
        since = clients.now() - NEW
        started = (pod.job for pod in seen.pods if pod.running_since and pod.running_since > since)
        query = replace(query, new=seen.running.intersection(started))
    began = [trial.created.timestamp() if trial.created else 0.0 for trial in seen.live]
    wanted = seen.wanted_curves or (lambda _: set())
    url, oldest = sweep.results_url or "", min(began, default=0.0)
    reading = await clients.live.read(sweep.id, sweep.plan, wanted, query, url=url, since=oldest)
    waits = query is not None and bool(query.new - reading.latest.keys())
    return replace(seen, reading=reading).again_in(SOON if waits else PERIOD)


FEATURE = Feature(
    name="live_values",
    observe=observe,
    steps=(Step(at=Moment.LIVE_VALUES, decide=follow),),
    running=lines,
)
