"""The commands that change a sweep's place in its queue (`queue raise`, `lower`, `move`, `hold`, `release`):
refusals, messages, and the line about held trials. Pure.
"""

from dataclasses import replace
from datetime import datetime

from bot.core.commands import Action, Command
from bot.core.events import Event
from bot.core.plan import SweepPlan
from bot.core.record import ACTIVE, Phase, SweepRecord
from bot.platform.config.permissions import queue_member
from bot.platform.config.policy import Config
from bot.platform.config.queues import priority_denial, queue_denial
from bot.platform.slack.mrkdwn import plain
from bot.sweep.features.queue.decide import QueueSeen, QueueState
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import display_name
from k8s.kueue import QUEUE_LABEL, job_labels

STEP = {Action.RAISE: 1, Action.LOWER: -1}


def queue_change_denial(
    sweep: SweepRecord, command: Command, seen: Observation, config: Config, _: datetime
) -> str:
    """Return why the queue of this sweep can't change so; "" if it can."""
    policy, who, plan = config.queueing, queue_member(command.user, config), sweep.plan
    if sweep.phase is Phase.STOPPING or sweep.phase.final:
        return f"`{sweep.id}` is stopping or has ended."
    if plan is None or not plan.queue:
        return (
            f"`{sweep.id}` isn't in a Kueue queue, so its place can't change. *Fix:* Start it again with "
            "queue= or priority=."
        )
    is_held = bool(sweep.of(QueueState).held_by)
    if command.action is Action.HOLD:
        return f"`{sweep.id}` is already held." if is_held else ""
    if command.action is Action.UNHOLD:
        return "" if is_held else f"`{sweep.id}` isn't held in its queue."
    if command.action is Action.MOVE:
        same = f"`{sweep.id}` is already in queue `{plan.queue}`." if command.queue == plan.queue else ""
        return same or queue_denial(command.queue, who, policy)
    wanted = _next(plan.priority, command.action, config)
    if not wanted:
        most = "highest" if command.action is Action.RAISE else "lowest"
        named = f": {plan.priority}" if plan.priority else ""
        return f"`{sweep.id}` already has the {most} configured priority{named}."
    class_name = policy.priority_class(wanted)
    unknown = (
        f"Sweepbot can't read the WorkloadPriorityClass `{class_name}`. *Fix:* Ask an admin to create it, "
        "and to run `kubectl apply -f deploy/queues/rights.yaml`."
    )
    is_known = class_name in seen.of(QueueSeen).priority_values
    return priority_denial(wanted, who, policy) or ("" if is_known else unknown)


def changed_queue(
    sweep: SweepRecord, command: Command, seen: Observation, config: Config, _: datetime
) -> SweepRecord:
    """Apply a command that `queue_change_denial` allows."""
    state, plan, who = sweep.of(QueueState), sweep.plan, display_name(sweep, command.user)
    if plan is None:
        return sweep
    match command.action:
        case Action.HOLD:
            text = (
                f":hourglass_flowing_sand: {who} held this sweep's waiting trials. Running trials continue. "
                f"To release them: `/sweep queue release {sweep.id}`."
            )
            return _changed(sweep, text, plan, replace(state, held_by=command.user))
        case Action.UNHOLD:
            text = f":runner: {who} released this sweep's waiting trials. They're back in the queue."
            return _changed(sweep, text, plan, replace(state, held_by=""))
        case Action.MOVE:
            labels = state.labels | {QUEUE_LABEL: command.queue}
            text = (
                f":runner: {who} changed this sweep to queue {plain(command.queue)}. Running trials stay in "
                "their queue."
            )
            state = replace(state, labels=labels, moved=())
            return _changed(sweep, text, replace(plan, queue=command.queue), state)
    priority = _next(plan.priority, command.action, config)
    class_name = config.queueing.priority_class(priority)
    labels, value = state.labels | job_labels("", class_name), seen.of(QueueSeen).priority_values[class_name]
    text = f":runner: {who} changed this sweep to priority {plain(priority)}."
    state = replace(state, labels=labels, value=value, lifted=(), moved=())
    return _changed(sweep, text, replace(plan, priority=priority), state)


def _changed(sweep: SweepRecord, text: str, plan: SweepPlan, state: QueueState) -> SweepRecord:
    return sweep.put(state, plan=plan).enqueue(Event(kind="queue_changed", text=text))


def _next(priority: str, action: Action, config: Config) -> str:
    """Return the next priority in this direction; "" if there is none."""
    names = [each.name for each in config.queueing.priorities]
    if priority not in names:
        return names[-1 if action is Action.RAISE else 0] if names else ""
    place = names.index(priority) + STEP[action]
    return names[place] if 0 <= place < len(names) else ""


def lines(sweep: SweepRecord) -> list[str]:
    user = sweep.of(QueueState).held_by
    if not user or sweep.phase not in ACTIVE:
        return []
    release = f"`/sweep queue release {sweep.id}`"
    return [f"{display_name(sweep, user)} held the waiting trials. Release them: {release}."]
