"""Read what running trials report, from MLflow or from their logs."""

from dataclasses import replace

from bot.clients import Clients
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.core.space import MetricSource
from bot.lifecycle.early_stopping import wanted_curves
from bot.lifecycle.observation import Observation
from bot.results.live import PERIOD
from bot.results.log_curves import LogQuery, LogSource
from bot.spaces.metrics import line_filter


async def observe_live(sweep: SweepRecord, seen: Observation, clients: Clients) -> Observation:
    """Add the last reading. Nothing is read unless a trial runs."""
    if sweep.phase is not Phase.RUNNING or sweep.plan is None or not seen.running:
        return seen
    wanted, query = wanted_curves(sweep, seen), log_query(sweep.plan, seen)
    query = query and replace(query, cluster=clients.trials)
    reading = await clients.live.read(sweep.id, sweep.plan, wanted, query)
    return replace(seen, reading=reading, observe_again_in=min(PERIOD, seen.observe_again_in or PERIOD))


def log_query(plan: SweepPlan, seen: Observation) -> LogQuery | None:
    """Return which logs to read; None: MLflow is read. Logs cost a request for each trial."""
    space = plan.space
    if space.stopping is None or space.source is not MetricSource.STDOUT:
        return None
    trials, namespace = {trial.name for trial in seen.trials}, plan.experiment_ref.namespace
    sources = (
        LogSource(
            trial=pod.job,
            namespace=namespace,
            pod=pod.name,
            uid=pod.uid,
            container=pod.container,
            finished=pod.finished,
        )
        for pod in seen.pods
        if pod.job in trials and not pod.deleted and not pod.index
    )
    pattern, strategy = line_filter((space.metric,)), space.strategies[space.metric]
    rungs = frozenset(space.stopping.rungs)
    return LogQuery(pattern=pattern, strategy=strategy, rungs=rungs, sources=tuple(sources))
