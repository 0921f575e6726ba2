"""Collect a sweep's results, and store them at its end: Katib's objects and Redis can be deleted."""

import asyncio
import logging

from bot.clients import Clients
from bot.config.teams import prices_for
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.work_item import ItemKind, WorkItem
from bot.lifecycle.early_stopping import with_stopped_values
from bot.lifecycle.observation import Observation
from bot.results.collect import Sources, collect
from bot.results.models import SweepResults
from k8s.api.errors import ApiError
from k8s.katib.spec import EXPERIMENT_LABEL, REQUEST_ID
from k8s.katib.status import read_experiment, read_trial
from k8s.objects import SWEEP_LABEL, TEAM_LABEL
from k8s.pods import is_trial_pod, read_trial_pod

log = logging.getLogger(__name__)


async def keep_results(sweep: SweepRecord, clients: Clients) -> SweepResults | None:
    """Collect, store, and return an ended sweep's results; None if there are none.

    If Katib's objects are gone, return the stored results. Raises ApiError and UnreachableError if a
    retry can help.
    """
    results = await _collected(sweep, sweep.plan, clients) if sweep.plan and sweep.submitted else None
    if results is None:
        return await _own_results(sweep, clients)
    try:
        await clients.kept_results.save(results)
        await clients.queue.add(WorkItem(ItemKind.TRIAL_RUNS, sweep.id))
    except ApiError as error:
        if not error.permanent:
            raise
        log.warning("can't store the results of %s: %s", sweep.id, error)
    return results


async def posted_results(sweep: SweepRecord, clients: Clients) -> SweepResults | None:
    """Return what `keep_results` stored: all messages have the same figures. Collect it if incomplete.

    Raises ApiError and UnreachableError.
    """
    stored = await _own_results(sweep, clients)
    if stored and stored.ended == sweep.since and not stored.omitted:
        return stored
    collected = await _collected(sweep, sweep.plan, clients) if sweep.plan and sweep.submitted else None
    return collected or stored


async def current_results(sweep: SweepRecord, seen: Observation, clients: Clients) -> SweepResults | None:
    """Return the results so far, of an ended sweep those that were stored; None without trials.

    Raises ApiError and UnreachableError.
    """
    if sweep.phase.final and (stored := await posted_results(sweep, clients)):
        return stored
    if sweep.plan is None or not seen.trials:
        return None
    sources = Sources(
        trials=with_stopped_values(sweep, seen.trials),
        pods=seen.pods,
        uses=await clients.usage.of_sweep(sweep.id, sweep.created, clients.now()),
        prices=clients.config.prices,
        currency=clients.config.currency,
    )
    return await asyncio.to_thread(collect, sweep, sweep.plan, sources)


async def _own_results(sweep: SweepRecord, clients: Clients) -> SweepResults | None:
    """Return the stored results unless they are of another sweep of this name."""
    stored = await stored_results(sweep.id, clients)
    return stored if stored and stored.request_id == sweep.request_id else None


async def stored_results(sweep_id: str, clients: Clients) -> SweepResults | None:
    """Return the results that were stored when the sweep ended; None if missing or invalid."""
    try:
        return await clients.kept_results.get(sweep_id)
    except ValueError as error:
        log.warning("unreadable results of %s: %s", sweep_id, error)
        return None


async def _collected(sweep: SweepRecord, plan: SweepPlan, clients: Clients) -> SweepResults | None:
    there = clients.of(sweep.cluster)
    ref, ours, cluster = plan.experiment_ref, f"{SWEEP_LABEL}={sweep.id}", there.trials
    found = await cluster.get(ref)
    if found is None or found["metadata"].get("annotations", {}).get(REQUEST_ID) != sweep.request_id:
        return None
    trials, pods, uses = await asyncio.gather(
        cluster.list("Trial", ref.namespace, labels=f"{ours},{EXPERIMENT_LABEL}={ref.name}"),
        cluster.list("Pod", ref.namespace, labels=ours, only=is_trial_pod),
        there.usage.of_sweep(sweep.id, sweep.created, sweep.since),
    )
    if not trials:
        return None
    experiment = read_experiment(found)
    team = plan.experiment["metadata"]["labels"].get(TEAM_LABEL, "")
    sources = Sources(
        trials=with_stopped_values(sweep, [read_trial(each, plan.space.strategies) for each in trials]),
        pods=[read_trial_pod(each) for each in pods],
        uses=uses,
        katib_best=experiment.best if experiment else "",
        prices=prices_for(clients.config.prices, team),
        currency=clients.config.currency,
    )
    return await asyncio.to_thread(collect, sweep, plan, sources)
