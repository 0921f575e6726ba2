"""Count the GPU-hours of a sweep with a budget, and start no trials that it has no room for. Pure.

GPU-hours are counted by pod, from its node to its end: a trial can have several pods, one after another or at
once. A pod's time is remembered, because Kubernetes deletes those of stopped and interrupted trials.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar

from bot.core.budget import Budget, read_budget
from bot.core.commands import Command
from bot.core.events import Event
from bot.core.feature_state import FeatureState
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.core.space import SEARCH_SERVICE
from bot.platform.config.policy import Config
from bot.platform.slack.mrkdwn import quoted
from bot.sweep.model.experiment import OUT_OF_BUDGET
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import display_name
from bot.sweep.results.collect import trial_of
from k8s.engine import TrialState

STEPS = 100  # of the shown figures, in a budget: each new figure is an edit of the message
HOUR = 3600  # seconds


@dataclass(frozen=True, kw_only=True)
class BudgetState(FeatureState):
    name: ClassVar[str] = "budget"

    running: dict[str, datetime] = field(default_factory=dict)  # by pod: since when it has GPUs
    ended: dict[str, int] = field(default_factory=dict)  # by pod: the seconds for which it had them
    used: float = 0.0  # GPU-hours, as shown
    needed: float | None = None  # by all trials, as shown; None: no trial has finished


def follow(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Count, estimate, and drain the sweep once its budget has no room for another usual trial."""
    plan = sweep.plan
    if plan is None or plan.budget is None or not sweep.submitted:
        return sweep
    state, budget, new = _counted(sweep, plan, seen, now), plan.budget, _new_trials(plan, seen)
    times, gpus = _seconds(state, plan, now), plan.gpus / HOUR
    used, usual = gpus * sum(times.values()), _usual(times, seen)
    going = [trial.name for trial in seen.live if trial.name not in seen.finishing]
    rest = gpus * sum(max(0.0, usual - times.get(name, 0.0)) for name in going)
    needed = used + rest + gpus * usual * new if usual else None
    if sweep.phase is Phase.STOPPING:  # the last figure is exact, and the estimate that of the last trials
        return sweep.put(replace(state, used=used))
    state = replace(state, needed=None if needed is None else _shown(needed, budget))
    sweep = sweep.put(replace(state, used=_shown(used, budget)))
    if sweep.phase is not Phase.RUNNING or not new or sweep.draining or sweep.holds:
        return sweep
    left = budget.gpu_hours - used - rest
    has_room = left > 0 and gpus * usual <= left
    if has_room:
        return sweep
    # Katib would start trials of an ended experiment that gets more of them.
    extending = sweep.extending and seen.open
    return sweep.enqueue(_reached(budget), draining=OUT_OF_BUDGET, extending=extending)


def restart_denial(sweep: SweepRecord) -> str:
    """Trials that start again all start at once, before the next look at the budget."""
    budget = sweep.plan.budget if sweep.plan else None
    if budget is None or sweep.of(BudgetState).used < budget.gpu_hours:
        return ""
    fix = f"/sweep rerun {sweep.id} budget=" if sweep.phase.final else f"/sweep raise {sweep.id} budget="
    return f"`{sweep.id}` has used its budget of {budget.text}. Set a higher one: `{fix}…`"


def _counted(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> BudgetState:
    """Return the state with the times of all pods. One that is gone ended with its trial, or just now."""
    state = sweep.of(BudgetState)
    running: dict[str, datetime] = {}
    ended, ends = dict(state.ended), {trial.name: trial.ended for trial in seen.trials if trial.ended}
    for pod in seen.pods:
        since = pod.scheduled or pod.began
        if since and not pod.finished:
            running[pod.name] = since
            ended.pop(pod.name, None)
        elif since and (pod.ended or pod.name not in ended):
            ended[pod.name] = _between(since, pod.ended or ends.get(pod.job, now))
    for name in state.running.keys() - running.keys() - ended.keys():
        ended[name] = _between(state.running[name], ends.get(trial_of(name, plan), now))
    return replace(state, running=running, ended=ended)


def _between(since: datetime, until: datetime) -> int:
    return max(0, round((until - since).total_seconds()))


def _seconds(state: BudgetState, plan: SweepPlan, now: datetime) -> Mapping[str, float]:
    """Return the seconds of each trial, the sum over its pods: each of them has `plan.gpus`."""
    found: dict[str, float] = defaultdict(float)
    for pod, seconds in state.ended.items():
        found[trial_of(pod, plan)] += seconds
    for pod, since in state.running.items():
        found[trial_of(pod, plan)] += _between(since, now)
    return found


def _usual(times: Mapping[str, float], seen: Observation) -> float:
    """Return the mean of the trials that ended, and of those that already run longer; 0 if none ended."""
    over = [times[t.name] for t in seen.trials if t.state is not TrialState.LIVE and times.get(t.name)]
    if not over:
        return 0.0
    mean = sum(over) / len(over)
    longer = [time for trial in seen.live if (time := times.get(trial.name, 0.0)) > mean]
    return (sum(over) + sum(longer)) / (len(over) + len(longer))


def _new_trials(plan: SweepPlan, seen: Observation) -> int:
    return max(0, plan.space.max_trials - len(seen.trials))


def _shown(gpu_hours: float, budget: Budget) -> float:
    step = budget.gpu_hours / STEPS
    return round(gpu_hours / step) * step


def _reached(budget: Budget) -> Event:
    text = (
        f"Budget of {budget.text} has no room for a trial beside the running ones: no new trials start; "
        "running trials finish."
    )
    return Event(kind="draining", text=f":hourglass_flowing_sand: {text}")


def requeue(_: SweepRecord, after: SweepRecord, now: datetime) -> timedelta | None:
    """Return the time until running trials have used the budget: none of them has to end for that."""
    plan, state = after.plan, after.of(BudgetState)
    if plan is None or plan.budget is None or not state.running or after.draining or after.holds:
        return None
    seconds = plan.budget.gpu_hours * HOUR / plan.gpus - sum(_seconds(state, plan, now).values())
    return timedelta(seconds=max(1.0, seconds / len(state.running))) if seconds > 0 else None


def raise_denial(sweep: SweepRecord, command: Command, _: Observation, config: Config, __: datetime) -> str:
    """Return why the budget can't be the command's; "" if it can. A stop that Katib has read is final."""
    budget = sweep.plan.budget if sweep.plan else None
    if budget is None:
        return f"`{sweep.id}` has no budget."
    if sweep.draining:
        return (
            f"`{sweep.id}` is draining: no new trials start. Rerun it with a higher budget when it has ended."
        )
    try:
        new = _other(budget, command.budget, config)
    except ValueError as error:
        return f"budget= must be {error}; got {quoted(command.budget)}."
    if new.gpu_hours <= budget.gpu_hours:
        return f"`{sweep.id}` already has a budget of {budget.text}. Set a higher one."
    return ""


def _other(budget: Budget, text: str, config: Config) -> Budget:
    """Return the budget, at the same price, with what was typed. Raises ValueError with the rule."""
    amount, is_money = read_budget(text, config.currency)
    if not is_money:
        return Budget(gpu_hours=amount)
    if not budget.price:
        raise ValueError("GPU-hours, as before")
    return replace(budget, gpu_hours=amount / budget.price)


def raised(sweep: SweepRecord, command: Command, _: Observation, config: Config, __: datetime) -> SweepRecord:
    plan = sweep.plan
    if plan is None or plan.budget is None:
        return sweep
    budget = _other(plan.budget, command.budget, config)
    text = f":runner: {display_name(sweep, command.user)} raised the budget to {budget.text}."
    # An older phase makes this reconcile write the ConfigMap again: the loss of Redis must not undo it.
    return sweep.enqueue(
        Event(kind="budget_raised", text=text),
        plan=replace(plan, budget=budget),
        durable_phase=Phase.RECEIVED,
    )


def lines(sweep: SweepRecord) -> list[str]:
    """Return the line of the parent message, until the sweep stops."""
    budget, state = sweep.plan.budget if sweep.plan else None, sweep.of(BudgetState)
    if budget is None or _stops(sweep):
        return []
    needed = "" if state.needed is None else f"; about {budget.amount(state.needed)} needed for all trials"
    return [f"{budget.amount(state.used)} of {budget.text}{needed}"]


def used(sweep: SweepRecord) -> str:
    """Return what a sweep that stops has used, and how to run the trials that its budget left out."""
    plan, state = sweep.plan, sweep.of(BudgetState)
    if plan is None or plan.budget is None or not _stops(sweep):
        return ""
    spent = f"Used {plan.budget.amount(state.used)} of {plan.budget.text}"
    if sweep.draining != OUT_OF_BUDGET:
        return spent
    enough = max(state.needed or 0.0, 2 * plan.budget.gpu_hours) * (plan.budget.price or 1)
    past = f" from={sweep.id}" if plan.space.algorithm == SEARCH_SERVICE else ""
    more = f"`/sweep rerun {sweep.id} budget={plan.budget.currency}{math.ceil(enough)}{past}`"
    return f"{spent}. For more trials: {more}"


def _stops(sweep: SweepRecord) -> bool:
    return sweep.phase is Phase.STOPPING or sweep.phase.final
