"""Decide whether a sweep with several nodes per trial can start: two half-started trials block each other.

Without a queue, nothing admits all workers of a trial together. A sweep therefore starts only while no other
such sweep is active in its cluster, or if enough nodes are free for its trial and for the next trials of the
others. One sweep decides at a time, by a turn in Redis.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from bot.clients import Clients
from bot.core.record import Phase, SweepRecord
from bot.lifecycle.observation import Observation
from bot.messages.start import waiting_text
from bot.sweeps.observe_capacity import capacity_request

TURN = "nodes"
SKEW = timedelta(seconds=10)  # between the clocks of two workers
ACTIVE = {Phase.PENDING, Phase.RUNNING}
ENDED = {Phase.HELD, Phase.PAUSED, Phase.STOPPING}  # no trials start


async def observe_nodes(sweep: SweepRecord, seen: Observation, clients: Clients) -> Observation:
    """Add why the sweep can't start yet. The cluster gets no request: the leader measures for all sweeps."""
    plan = sweep.plan
    if plan is None or plan.nodes < 2 or not plan.gpus or sweep.queue_and_priority[0]:
        return seen
    if sweep.phase in ENDED:
        await clients.capacity.forget(sweep.id)
    if sweep.phase not in ACTIVE:
        return replace(seen, start_wait=waiting_text(plan))
    if sweep.submitted or seen.experiment:
        await clients.capacity.register(capacity_request(sweep, plan, seen, clients.now()))
        return seen
    if await _starts(sweep, seen, clients):
        return seen
    return replace(seen, start_wait=waiting_text(plan))


async def _starts(sweep: SweepRecord, seen: Observation, clients: Clients) -> bool:
    """Take the sweep's turn, and register its start before another one decides."""
    store, plan, now = clients.capacity, sweep.plan, clients.now()
    if plan is None or not await store.take_turn(sweep.id, TURN):
        return False
    others = await _others(sweep.id, plan.resource, clients)
    starting = capacity_request(sweep, plan, seen, now)
    last = await store.register(replace(starting, started=False, expects=0))
    free = last is not None and bool(last.trials) and _is_newer(last.at, others.values())
    if starts := free or not others:
        await store.register(starting)
    await store.end_turn(TURN)
    return starts


async def _others(sweep: str, resource: str, clients: Clients) -> dict[str, datetime]:
    """Return since when measurements include the other active sweeps; from now on for one not seen for long.

    The records decide which are active: after all workers were away, no sweep has a current request.
    """
    now, found = clients.now(), dict[str, datetime]()
    current = {one.sweep for one in await clients.capacity.requests(now)}
    for other, since in (await clients.capacity.starts()).items():
        record = await clients.store.get(other) if other != sweep else None
        if record and record.plan and record.phase in ACTIVE:
            if record.plan.resource == resource:
                found[other] = since if other in current else now
        elif other != sweep:
            await clients.capacity.forget(other)
    return found


def _is_newer(measured: datetime, starts: Iterable[datetime]) -> bool:
    """Return whether the measurement includes what these sweeps need."""
    return all(measured - start >= SKEW for start in starts)
