"""Collect a sweep's results, and store them at its end: Katib's objects and Redis can be deleted."""

import asyncio
import logging
import math
from collections.abc import Collection
from dataclasses import replace

from bot.core.curves import Curve, Point
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.config.teams import prices_for
from bot.platform.slack.message import File
from bot.sweep.clients import SweepClients
from bot.sweep.model import engine
from bot.sweep.model.observation import Observation
from bot.sweep.model.progress import with_stopped_values
from bot.sweep.reports.trial_pictures import trial_pictures
from bot.sweep.results.collect import Sources, collect
from bot.sweep.results.log_curves import LogCurve, log_query
from bot.sweep.results.models import SweepResults, TrialResult
from bot.sweep.results.ranking import ranked
from k8s.api.errors import ApiError
from k8s.objects import SWEEP_LABEL, TEAM_LABEL
from k8s.pods import Pod, is_trial_pod, read_trial_pods

log = logging.getLogger(__name__)

CURVES_STORED = 6  # per sweep; the chart has six colors


async def keep_results(sweep: SweepRecord, clients: SweepClients) -> SweepResults | None:
    """Collect, store, and return an ended sweep's results; None if there are none.

    If Katib's objects are gone, return the stored results. Raises ApiError and UnreachableError if a
    retry can help.
    """
    results = await _collected(sweep, sweep.plan, clients) if sweep.plan and sweep.submitted else None
    if results is None:
        return await _own_results(sweep, clients)
    if sweep.plan and sweep.plan.has_reader:
        best = [trial.name for trial in best_trials(results)]
        logged = await logged_curves(sweep, sweep.plan, best, clients)
        curves = {trial: each.curve(results.space.metric) for trial, each in logged.items()}
        results = replace(
            results, curves={trial: finite_curve(each) for trial, each in curves.items() if each}
        )
    try:
        await clients.kept_results.save(results)
        await clients.queue.add(WorkItem(ItemKind.TRIAL_RUNS, sweep.id))
    except ApiError as error:
        if not error.permanent:
            raise
        log.warning("can't store the results of %s: %s", sweep.id, error)
    return results


async def posted_results(sweep: SweepRecord, clients: SweepClients) -> SweepResults | None:
    """Return what `keep_results` stored: all messages have the same figures. Collect it if incomplete.

    Raises ApiError and UnreachableError.
    """
    stored = await _own_results(sweep, clients)
    if stored and stored.ended == sweep.since and not stored.omitted:
        return stored
    collected = await _collected(sweep, sweep.plan, clients) if sweep.plan and sweep.submitted else None
    return collected or stored


async def current_results(
    sweep: SweepRecord, seen: Observation, clients: SweepClients
) -> SweepResults | None:
    """Return the results so far, of an ended sweep those that were stored; None without trials.

    Raises ApiError and UnreachableError.
    """
    if sweep.phase.final and (stored := await posted_results(sweep, clients)):
        return stored
    if sweep.plan is None or not seen.trials:
        return None
    uses = await clients.usage.of_sweep(sweep.id, sweep.created, clients.now())
    found = Sources(trials=seen.trials, pods=seen.pods, uses=uses)
    return await _results(sweep, sweep.plan, found, clients)


async def _own_results(sweep: SweepRecord, clients: SweepClients) -> SweepResults | None:
    """Return the stored results unless they are of another sweep of this name."""
    stored = await stored_results(sweep.id, clients)
    return stored if stored and stored.request_id == sweep.request_id else None


async def stored_results(sweep_id: str, clients: SweepClients) -> SweepResults | None:
    """Return the results that were stored when the sweep ended; None if missing or invalid."""
    try:
        return await clients.kept_results.get(sweep_id)
    except ValueError as error:
        log.warning("unreadable results of %s: %s", sweep_id, error)
        return None


async def _collected(sweep: SweepRecord, plan: SweepPlan, clients: SweepClients) -> SweepResults | None:
    there, until = clients.of(sweep.cluster), sweep.since if sweep.phase.final else clients.now()
    experiment = await engine.find_experiment(plan, there.trials)
    if experiment is None or experiment.request_id != sweep.request_id:
        return None
    trials, pods, uses = await asyncio.gather(
        engine.list_trials(sweep, plan, there.trials),
        _pods(sweep, plan, clients),
        there.usage.of_sweep(sweep.id, sweep.created, until),
    )
    if not trials:
        return None
    found = Sources(trials=trials, pods=pods, uses=uses, katib_best=experiment.best)
    return await _results(sweep, plan, found, clients)


async def _results(
    sweep: SweepRecord, plan: SweepPlan, found: Sources, clients: SweepClients
) -> SweepResults:
    """Return the results by what was found, with the prices and the values of stopped trials."""
    team = plan.experiment["metadata"]["labels"].get(TEAM_LABEL, "")
    prices, trials = prices_for(clients.config.prices, team), with_stopped_values(sweep, found.trials)
    priced = replace(found, trials=trials, prices=prices, currency=clients.config.currency)
    return await asyncio.to_thread(collect, sweep, plan, priced)


async def logged_curves(
    sweep: SweepRecord, plan: SweepPlan, trials: Collection[str], clients: SweepClients
) -> dict[str, LogCurve]:
    """Return what the trials' readers printed, by trial; nothing without readers.

    Raises ApiError, UnreachableError, and RedisError.
    """
    if not plan.has_reader:
        return {}
    pods, there = await _pods(sweep, plan, clients), clients.of(sweep.cluster).trials
    query = log_query(plan, pods, trials, there)
    return await clients.live.logged(sweep.id, query) if query else {}


async def best_pictures(sweep: SweepRecord, results: SweepResults, clients: SweepClients) -> list[File]:
    """Return the best trial's last pictures. Raises ApiError and UnreachableError."""
    if sweep.plan is None or not sweep.plan.has_reader or not results.best:
        return []
    pods = await _pods(sweep, sweep.plan, clients)
    cluster, turn = clients.of(sweep.cluster).trials, clients.pictures.encoding
    return await trial_pictures(results.best, pods, sweep.plan, cluster, turn)


async def _pods(sweep: SweepRecord, plan: SweepPlan, clients: SweepClients) -> list[Pod]:
    there, namespace = clients.of(sweep.cluster).trials, plan.experiment_ref.namespace
    found = await there.list("Pod", namespace, labels=f"{SWEEP_LABEL}={sweep.id}", only=is_trial_pod)
    return [*read_trial_pods(found, ())]


def best_trials(results: SweepResults) -> list[TrialResult]:
    """Return the trials whose learning curves are stored; none where none is the best."""
    finite = [each for each in results.trials if each.value is not None]
    return (
        ranked(results.space.goal, finite, results.best)[:CURVES_STORED] if results.space.names_best else []
    )


def finite_curve(curve: Curve) -> Curve:
    """Return the finite points. NaN differs from itself, and so would results that have one."""
    return tuple(Point(point.step, point.value) for point in curve if math.isfinite(point.value))
