"""Decide whether a sweep with several nodes per trial can start: two half-started trials block each other.

Without a queue, nothing admits all workers of a trial together. A sweep that is new, resumed, or extended
therefore starts only if no other one in its cluster can start trials, or if enough nodes are free for its
trial and for those of all sweeps ahead of it: the active ones, and those that have waited for longer. One
sweep decides at a time, under a lock in Redis. Records and experiments say which sweeps are active, so that
one whose record was lost still counts.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from bot.core.pace import FreeCapacity
from bot.core.plan import SweepPlan
from bot.core.record import ACTIVE, Phase, SweepRecord
from bot.platform.config.policy import all_namespaces, namespaces_in
from bot.sweep.clients import SweepClients
from bot.sweep.features.nodes.decide import (
    CHECKING,
    NodesSeen,
    NodesState,
    can_start_trials,
    waiting_text,
    waits_for_nodes,
)
from bot.sweep.model import engine
from bot.sweep.model.capacity_request import capacity_request
from bot.sweep.model.observation import Observation
from k8s.api.errors import ApiError

AGAIN = timedelta(seconds=20)  # until a waiting sweep decides again
MEASURED_WITHIN = timedelta(seconds=75)  # two measurements; other sweeps may have grown since an older one
ENDED = {Phase.HELD, Phase.PAUSED, Phase.STOPPING}  # no trials start
# States of a sweep that is ahead: trials have run, the first one hasn't yet, or it waits for nodes, too.
RUNS, STARTS, WAITS = "running", "starting", "waiting"


async def observe(sweep: SweepRecord, seen: Observation, clients: SweepClients) -> Observation:
    """Add why the sweep can't start yet; the leader measures free nodes for all sweeps."""
    plan = sweep.plan
    if plan is None or not plan.starts_together:
        return seen
    if sweep.phase in ENDED:
        await clients.capacity.forget(sweep.id)
    if sweep.phase not in ACTIVE:  # a command can make it active
        return _blocked(seen, CHECKING)
    if seen.open or not waits_for_nodes(sweep) or (seen.experiment and not sweep.submitted):
        await clients.capacity.register(capacity_request(sweep, plan, seen, clients.now()))
        return seen
    why = await _start_wait(sweep, plan, _blocked(seen, CHECKING), clients)
    return _blocked(seen, why).again_in(AGAIN) if why else seen


def _blocked(seen: Observation, why: str) -> Observation:
    return seen.put(NodesSeen(wait=why), start_blocked=True)


async def _start_wait(sweep: SweepRecord, plan: SweepPlan, seen: Observation, clients: SweepClients) -> str:
    """Return why the sweep has to wait; "" if it can start, which others see before they decide."""
    store = clients.capacity
    if not await store.lock_starts(sweep.id):
        return sweep.of(NodesState).wait or CHECKING
    try:
        waiting = capacity_request(sweep, plan, seen, clients.now())
        free = await store.register(waiting)
        ahead = await _known_ahead(sweep, plan, clients)
        if _fits(ahead, free, clients.now()):  # else the cluster gets no request
            ahead |= await _running_in_cluster(sweep, plan, clients, set(ahead))
        if not _fits(ahead, free, clients.now()):
            return waiting_text(plan, ahead)
        others_grow = ahead and not await store.lock_growth(sweep.id, plan.resource)
        if others_grow or not await store.has_start_lock(sweep.id):
            return sweep.of(NodesState).wait or CHECKING
        await store.register(replace(waiting, started=True, since=None))
        return ""
    finally:
        await store.unlock_starts(sweep.id)


def _fits(ahead: dict[str, str], free: FreeCapacity | None, now: datetime) -> bool:
    """Return whether enough nodes are free, with those that the sweeps ahead of it need set aside."""
    if not ahead:
        return True
    measured = free is not None and now - free.at < MEASURED_WITHIN and ahead.keys() <= set(free.beside)
    return free is not None and measured and bool(free.trials)


async def _known_ahead(sweep: SweepRecord, plan: SweepPlan, clients: SweepClients) -> dict[str, str]:
    """Return the sweeps ahead of this one by their records, and their states; active ones come first.

    Nothing updates the record of a quarantined one: only its experiment says whether it is active. One whose
    reconciles keep failing can't start, so no other waits for it.
    """
    summaries = await clients.store.listed()
    listed = [one.id for one in summaries if one.starts_together and one.live and one.id != sweep.id]
    current = await clients.capacity.requests(clients.now())
    starting = {one.sweep for one in current if one.started}  # decided; the experiment may not exist yet
    active, waiting = dict[str, str](), list[tuple[datetime, str]]()
    for other in await clients.store.records(listed):
        if other.quarantined or not _competes(other, sweep, plan):
            continue
        if can_start_trials(other) or (other.id in starting and waits_for_nodes(other)):
            active[other.id] = _state(other)
        elif waits_for_nodes(other) and not other.has_trouble:
            waiting.append((other.since, other.id))
    before = sorted(each for each in waiting if each < (sweep.since, sweep.id))
    return dict(sorted(active.items())) | {name: WAITS for _, name in before}


def _competes(other: SweepRecord, sweep: SweepRecord, plan: SweepPlan) -> bool:
    """Return whether trials of both can wait for the same nodes."""
    if other.plan is None or not other.plan.starts_together:
        return False
    return other.plan.resource == plan.resource and other.cluster == sweep.cluster


async def _running_in_cluster(
    sweep: SweepRecord, plan: SweepPlan, clients: SweepClients, known: set[str]
) -> dict[str, str]:
    """Return the other sweeps whose experiments are open, unless their records say that they don't compete.

    One without a record counts: Redis can have lost it.
    """
    home = clients.settings.k8s_namespace
    there = namespaces_in(clients.at.config, home, clients.config) if clients.at else ()
    running = set[str]()
    for namespace in {plan.experiment_ref.namespace, *(there or all_namespaces(home, clients.config))}:
        try:
            running |= await engine.open_with_several_nodes(clients.trials, namespace)
        except ApiError as error:
            if error.status != 403:  # where Sweepbot can't list them, it can't create any
                raise
    others = sorted(running - known - {sweep.id})
    records = {one.id: one for one in await clients.store.records(others)}
    competing = (each for each in others if each not in records or _competes(records[each], sweep, plan))
    return {each: _state(records.get(each)) for each in competing}


def _state(active: SweepRecord | None) -> str:
    """Return whether its first trial has started; without a record, its experiment is open."""
    return STARTS if active and active.phase is Phase.PENDING else RUNS
