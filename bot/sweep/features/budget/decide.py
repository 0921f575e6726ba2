"""Count the GPU-hours of a sweep with `budget=`: how many trials can start, when it drains or stops trials,
its line and end, and `/sweep raise` with its refusals. Pure.

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
from k8s.katib.manifest import limited
from k8s.objects import Manifest

STEPS = 100  # of the shown figures, in a budget: each new figure is an edit of the message
HOUR = 3600  # seconds
# The next trials can take longer than any before: MARGIN / n more than the longest of n trials.
MARGIN = 4
ONE = "Trials run one at a time until one succeeds: what it uses shows how many fit the budget."
FEWER = "Fewer trials run at once, because long ones could exceed the budget."


@dataclass(frozen=True, kw_only=True)
class BudgetState(FeatureState):
    name: ClassVar[str] = "budget"

    running: dict[str, datetime] = field(default_factory=dict)  # by pod: since when it has GPUs
    ended: dict[str, int] = field(default_factory=dict)  # by pod: the seconds for which it had them
    used: float = 0.0  # GPU-hours, as shown
    needed: float | None = None  # by all trials, as shown; None: no trial has finished
    waits: str = ""  # why fewer trials run at once than could, as a sentence; "": they don't


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
    sweep = _paced(sweep.put(replace(state, used=_shown(used, budget))), plan, used, times, seen)
    if sweep.phase is not Phase.RUNNING:
        return sweep
    if over := _over(budget, plan, times, going):
        sweep = replace(sweep, to_kill=dict.fromkeys(over, OUT_OF_BUDGET) | sweep.to_kill)
    if not new or sweep.draining or sweep.holds:
        return sweep
    left = budget.gpu_hours - used - rest
    has_room = left > 0 and gpus * usual <= left
    if has_room:
        return sweep
    # Katib would start trials of an ended experiment that gets more of them.
    extending = sweep.extending and seen.open
    text = (
        f"Budget of {budget.text} has no room for a trial beside the running ones: no new trials start; "
        "running trials finish."
    )
    event = Event(kind="draining", text=f":hourglass_flowing_sand: {text}")
    return sweep.enqueue(event, draining=OUT_OF_BUDGET, extending=extending)


def _over(budget: Budget, plan: SweepPlan, times: Mapping[str, float], going: list[str]) -> list[str]:
    """Return the running trials to stop: all but the longest, if the budget is exceeded by that one."""
    longest = max(times, key=lambda name: times[name], default="")
    limit = budget.gpu_hours * HOUR / plan.gpus + times.get(longest, 0.0)
    return [name for name in going if name != longest] if sum(times.values()) >= limit else []


def _paced(
    sweep: SweepRecord, plan: SweepPlan, used: float, times: Mapping[str, float], seen: Observation
) -> SweepRecord:
    """Choose how many trials can have started: those that fit beside the running ones, if all take long."""
    starts, most = _starts(plan, used, times, seen), _new_trials(plan, seen)
    longest, slowed = _longest(plan, times, seen), starts < min(most, plan.space.parallel - len(seen.live))
    waits = "" if not slowed else FEWER if longest else ONE
    now = max(1, len(seen.trials) + starts) if starts < most else 0
    return replace(sweep.change(BudgetState, waits=waits), trials_now=now)


def _starts(plan: SweepPlan, used: float, times: Mapping[str, float], seen: Observation) -> int:
    """Return how many trials can start now, so that all but the last one surely fit the budget."""
    budget, longest = plan.budget, _longest(plan, times, seen)
    if budget is None or not longest:
        return max(0, 1 - len(seen.live))
    going = [times.get(trial.name, 0.0) for trial in seen.live if trial.name not in seen.finishing]
    seconds = (budget.gpu_hours - used) * HOUR / plan.gpus - sum(max(0.0, longest - each) for each in going)
    left = seconds - _usual(times, seen)
    return math.floor(left / longest) + 1 if left >= 0 and seconds > 0 else 0


def _longest(plan: SweepPlan, times: Mapping[str, float], seen: Observation) -> float:
    """Return the seconds of GPUs that no trial is expected to exceed; 0 if nothing is known yet.

    That is known from trials that succeeded, or before from an earlier sweep: others can have ended early.
    """
    limit, budget = plan.space.trial_hours, plan.budget
    known = [times[trial.name] for trial in seen.succeeded if times.get(trial.name)]
    if not known and budget and budget.usual:
        known = [budget.usual * HOUR / plan.gpus]
    if not known:
        return plan.nodes * limit * HOUR if limit else 0.0
    running = [times.get(trial.name, 0.0) for trial in seen.live]
    longest = max(known + running) * (1 + MARGIN / len(known))
    return min(longest, plan.nodes * limit * HOUR) if limit else longest


def prepare(sweep: SweepRecord, experiment: Manifest) -> Manifest:
    """Limit the experiment to the trials that can start at once; a second one follows the first."""
    plan = sweep.plan
    if plan is None or plan.budget is None or sweep.first_only:
        return experiment
    number = max(1, _starts(plan, sweep.of(BudgetState).used, {}, Observation()))
    return experiment if number >= plan.space.max_trials else limited(experiment, max(2, number), number)


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


def requeue(_: SweepRecord, after: SweepRecord, now: datetime) -> timedelta | None:
    """Return the time until running trials use more than they can: none of them has to end for that."""
    plan, state = after.plan, after.of(BudgetState)
    if plan is None or plan.budget is None or not state.running:
        return None
    times = _seconds(state, plan, now)
    left, pods = plan.budget.gpu_hours * HOUR / plan.gpus - sum(times.values()), len(state.running)
    if after.draining or left <= 0:  # the next limit, which the longest trial takes along
        longest = max(times, key=lambda name: times[name])
        left += times[longest]
        pods -= sum(trial_of(pod, plan) == longest for pod in state.running)
    return timedelta(seconds=max(1.0, left / pods)) if left > 0 and pods else None


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
        return replace(budget, gpu_hours=amount, price=0.0, currency="")
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
    """Return the lines of the parent message, until the sweep stops."""
    budget, state = sweep.plan.budget if sweep.plan else None, sweep.of(BudgetState)
    if budget is None or _stops(sweep):
        return []
    needed = "" if state.needed is None else f"; about {budget.amount(state.needed)} needed for all trials"
    is_slowed = not (sweep.first_only or sweep.draining or sweep.holds)
    waits = [state.waits] if state.waits and is_slowed else []
    return [f"{budget.amount(state.used)} of {budget.text}{needed}", *waits]


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
