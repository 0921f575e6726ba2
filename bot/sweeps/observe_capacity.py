"""Read the free GPUs that the leader measured for a `parallel=auto` sweep; the cluster gets no request."""

from dataclasses import replace
from datetime import datetime

from bot.clients import Clients
from bot.config.permissions import most_parallel
from bot.core.gangs import ACTIVE, is_gang
from bot.core.pace import CapacityRequest
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.launch.user_limits import limited_sweeps, other_peaks
from bot.lifecycle.observation import Observation
from bot.lifecycle.pace import can_change, can_grow
from bot.results.live import PERIOD
from k8s.katib.manifest import first_pod
from k8s.nodes.node_matching import PLACEMENT


async def observe_capacity(sweep: SweepRecord, seen: Observation, clients: Clients) -> Observation:
    """Add the last measurement and the limits. While another one grows, it sees no free GPUs."""
    plan, user = sweep.plan, sweep.requester.user
    if plan is None or not plan.space.auto or sweep.phase not in ACTIVE or seen.start_wait:
        return seen
    capacity = await clients.capacity.register(capacity_request(sweep, plan, seen, clients.now()))
    others = [one for one in await limited_sweeps(user, clients) if one.id != sweep.id]
    most = most_parallel(user, plan, clients.config, other_peaks(user, others))
    again = min(PERIOD, seen.observe_again_in or PERIOD)
    seen = replace(seen, capacity=capacity, most_parallel=most, observe_again_in=again)
    if capacity is None or capacity.trials is None:
        return seen
    grows = can_change(sweep, seen) and can_grow(sweep, capacity, seen, clients.now())
    if grows and await clients.capacity.lock_growth(sweep.id, plan.queue or plan.resource):
        return seen
    return replace(seen, capacity=replace(capacity, trials=0, steady=0))


def capacity_request(
    sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime
) -> CapacityRequest:
    pod = first_pod(plan.with_pod)
    gang = is_gang(sweep)
    return CapacityRequest(
        sweep=sweep.id,
        namespace=plan.experiment_ref.namespace,
        queue=sweep.queue_and_priority[0],
        gpus=plan.gpus,
        resource=plan.resource,
        pods=plan.nodes,
        pod={key: pod[key] for key in PLACEMENT if key in pod},
        expects=_expected(sweep, plan) if gang else 0,
        started=gang and not seen.start_wait,
        since=sweep.since if gang and seen.start_wait else None,
        auto=plan.space.auto,
        at=now,
    )


def _expected(sweep: SweepRecord, plan: SweepPlan) -> int:
    """Return how many pods its trials have at once, also between two trials.

    A pausing sweep keeps its nodes until it is paused: a resume before that starts trials without a check.
    """
    if sweep.draining:
        return 0
    parallel = sweep.pace.target if plan.space.auto else plan.space.parallel
    return plan.nodes * max(0, min(parallel, plan.space.max_trials - sweep.progress.finished))
