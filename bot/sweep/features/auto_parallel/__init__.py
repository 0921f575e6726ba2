"""`parallel=auto`: the number of parallel trials follows free GPUs."""

from dataclasses import replace

from bot.core.record import ACTIVE, SweepRecord
from bot.platform.config.permissions import most_parallel
from bot.sweep.clients import SweepClients
from bot.sweep.features.auto_parallel import decide
from bot.sweep.features.auto_parallel.decide import (
    AutoParallelSeen,
    AutoParallelState,
    can_change,
    can_grow,
    lines,
)
from bot.sweep.launch.user_limits import limited_sweeps, other_peaks
from bot.sweep.model.capacity_request import capacity_request
from bot.sweep.model.experiment import ended_by_lowered_count
from bot.sweep.model.feature import Feature, Moment, Step
from bot.sweep.model.observation import Observation
from bot.sweep.model.pace import steer
from bot.sweep.results.live import PERIOD


async def observe(sweep: SweepRecord, seen: Observation, clients: SweepClients) -> Observation:
    """Add the last measurement and the limits. While another one grows, it sees no free GPUs."""
    plan, user = sweep.plan, sweep.requester.user
    if plan is None or not plan.space.auto or sweep.phase not in ACTIVE or seen.start_blocked:
        return seen
    capacity = await clients.capacity.register(capacity_request(sweep, plan, seen, clients.now()))
    others = [one for one in await limited_sweeps(user, clients) if one.id != sweep.id]
    most = most_parallel(user, plan, clients.config, other_peaks(user, others))
    seen = seen.put(AutoParallelSeen(capacity=capacity, most=most)).again_in(PERIOD)
    if capacity is None or capacity.trials is None:
        return seen
    grows = can_change(sweep, seen) and can_grow(sweep, capacity, seen, clients.now())
    if grows and await clients.capacity.lock_growth(sweep.id, plan.queue or plan.resource):
        return seen
    return seen.put(AutoParallelSeen(capacity=replace(capacity, trials=0, steady=0), most=most))


FEATURE = Feature(
    name="auto_parallel",
    states=(AutoParallelState,),
    observe=observe,
    steps=(Step(at=Moment.NEXT, decide=decide.follow),),  # by the trials that are left
    continues=ended_by_lowered_count,
    steer=steer,
    restarted=decide.restarted,
    lines=lines,
)
