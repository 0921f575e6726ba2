"""Kueue: what users change about the place of a sweep's waiting trials in their queue (`/sweep queue raise`,
`lower`, `move`, `hold`, `release`).
"""

from datetime import timedelta

from bot.core.commands import Action
from bot.core.record import ACTIVE, SweepRecord
from bot.platform.pod_health.cluster_events import list_if_allowed, list_workloads
from bot.sweep.clients import SweepClients
from bot.sweep.features.queue import commands, decide
from bot.sweep.features.queue.decide import QueueSeen, QueueState, changing
from bot.sweep.model.feature import CommandRule, Feature, Moment, Step
from bot.sweep.model.observation import Observation

AGAIN = timedelta(seconds=5)  # until Workloads that Sweepbot changed are read again; they aren't watched


async def observe(sweep: SweepRecord, seen: Observation, clients: SweepClients) -> Observation:
    """Add Workloads and priorities. Nothing is read unless a change or a command needs it."""
    values = await _priority_values(seen, clients)
    concerned = changing(sweep, seen) if sweep.phase in ACTIVE else set()
    if sweep.plan is None or not concerned:
        return seen.put(QueueSeen(priority_values=values)) if values else seen
    workloads = await list_workloads(sweep.plan.experiment_ref.namespace, concerned, clients)
    own = QueueSeen(workloads=tuple(workloads), looked_up=frozenset(concerned), priority_values=values)
    return seen.put(own).again_in(AGAIN)


async def _priority_values(seen: Observation, clients: SweepClients) -> dict[str, int]:
    """Return the value of each WorkloadPriorityClass, if a command needs them."""
    if not any(command.action in {Action.RAISE, Action.LOWER} for command in seen.commands):
        return {}
    classes = await list_if_allowed("WorkloadPriorityClass", "", clients)
    return {each["metadata"]["name"]: int(each["value"]) for each in classes}


ACTIONS = (Action.RAISE, Action.LOWER, Action.MOVE, Action.HOLD, Action.UNHOLD)
RULE = CommandRule(denial=commands.queue_change_denial, apply=commands.changed_queue, when_ended=True)
FEATURE = Feature(
    name="queue",
    states=(QueueState,),
    observe=observe,
    steps=(Step(at=Moment.NEXT, decide=decide.follow),),
    changes=decide.changes,
    commands=dict.fromkeys(ACTIONS, RULE),
    lines=commands.lines,
    requeue=decide.requeue,
)
