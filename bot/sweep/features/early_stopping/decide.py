"""Stop trials early by their live values, with the message that says why, the GPU-hours saved, dry runs, and
the warning that no values arrive (rules: `bot.core.stopping`). Pure.

A trial to stop stays in the record until its pods are gone, so a worker can die at any call. Its condition in
the cluster shows that it was stopped early rather than cancelled.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar

from bot.core.curves import Point
from bot.core.events import Event
from bot.core.feature_state import FeatureState
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.core.space import Goal, MetricSource
from bot.core.stopping import ASHA, EarlyStop, Objective, Rungs, StoppingRule, Verdict, judge, missing_rungs
from bot.platform.slack.mrkdwn import code, plain
from bot.sweep.clients import SweepClients
from bot.sweep.model import engine
from bot.sweep.model.changes import RequiredChanges, deletions
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import devices
from bot.sweep.model.time_left import run_times, usual_seconds
from bot.text.wording import counted, fitting
from k8s.engine import TrialState


@dataclass(frozen=True, kw_only=True)
class EarlyStoppingState(FeatureState):
    name: ClassVar[str] = "early_stopping"
    of_one_attempt: ClassVar[bool] = True

    rungs: Rungs = field(default_factory=dict)
    ending: dict[str, EarlyStop] = field(default_factory=dict)  # by trial: being stopped
    ended: dict[str, EarlyStop] = field(default_factory=dict)  # stopped, or in a dry run would be
    saved_gpu_hours: float = 0.0  # estimated


MAX_TEXT = 2_500  # characters


def stopped_line(plan: SweepPlan, trial: str, stop: EarlyStop, usual: float | None) -> str:
    """Return why a trial is stopped, and the saved GPU-hours if finished trials show the usual run time."""
    rule, metric = plan.space.stopping, plan.space.metric
    value = "no finite value" if stop.value is None else f"{stop.value:.4g}"
    cutoff = "" if stop.cutoff is None else f"{stop.cutoff:.4g}, "
    among = f"the median of {stop.others} trials"
    if stop.stalled_since:
        among = f"the best so far, and no better than at step {stop.stalled_since:,}"
    elif rule and rule.name == ASHA:
        among = f"the cutoff for the best 1/{rule.factor} of {stop.others + 1} trials"
    hours = max(0.0, (usual or 0.0) - stop.seconds) * plan.trial_gpus / 3600
    saved = f"; about {hours:.1f} GPU-hours saved" if hours >= 0.05 else ""
    return f"{trial}: {metric} {value} at step {stop.step:,}, worse than {cutoff}{among}{saved}"


def stopped(plan: SweepPlan, stops: Mapping[str, EarlyStop], seen: Observation) -> Event:
    """Report trials, a line for each."""
    rule, trials, usual = plan.space.stopping, counted(len(stops), "trial"), usual_seconds(seen)
    lines = (f"• {plain(stopped_line(plan, name, stop, usual))}" for name, stop in stops.items())
    shown = "\n".join(fitting(lines, MAX_TEXT))
    if rule and rule.dry_run:
        text = f"Dry run: {rule.name} would have stopped {trials} early.\n{shown}"
    else:
        whose = "Its" if len(stops) == 1 else "Their"
        name = rule.name if rule else "early stopping"
        text = f"Sweepbot stopped {trials} early ({name}). {whose} {devices(plan)} are free.\n{shown}"
    return Event(kind="stopped_early", text=f":black_square_for_stop: {text}")


def not_judged(plan: SweepPlan, rule: StoppingRule) -> Event:
    metric = plan.space.metric
    call = f'mlflow.log_metric("{metric}", value, step=step)'
    where, fix = "MLflow run has", f"Log it while training: {code(call)}"
    if plan.space.source is MetricSource.STDOUT:
        where, fix = "line of its output has", f"Print it while training: {code(f'{metric}=0.1')}"
    elif plan.has_reader:
        where, call = "TensorBoard file has", f'writer.add_scalar("{metric}", value, step)'
        fix = f"Log it while training: {code(call)}"
    text = (
        f"{rule.name} can't stop trials: a trial finished, but no {where} the metric {code(metric)}. "
        f"*Fix:* {fix}."
    )
    return Event(kind="not_judged", text=f":warning: {text}")


def savings(sweep: SweepRecord) -> str:
    """Return the GPU-hours that early stopping has saved so far; "" without a stopped trial."""
    rule = sweep.plan.space.stopping if sweep.plan else None
    state = sweep.of(EarlyStoppingState)
    if rule is None or not state.ended:
        return ""
    hours = f"about {state.saved_gpu_hours:,.1f} GPU-hours" if state.saved_gpu_hours else ""
    if not rule.dry_run:
        return f"Early stopping ({rule.name}) saved {hours}" if hours else ""
    best = sweep.progress.best
    which = ", including the best one" if best and best.trial in state.ended else ""
    saved = f", and saved {hours}" if hours else ""
    return f"Dry run: {rule.name} would have stopped {counted(len(state.ended), 'trial')}{which}{saved}"


MAX_CURVES_PER_READING = 100  # the next reading, a minute later, has the others


async def observe(sweep: SweepRecord, seen: Observation, _: SweepClients) -> Observation:
    """Add which curves to read; calls nothing."""
    rule = sweep.plan.space.stopping if sweep.plan else None
    return replace(seen, wanted_curves=wanted_curves(rule, sweep, seen)) if rule else seen


def wanted_curves(
    rule: StoppingRule, sweep: SweepRecord, seen: Observation
) -> Callable[[Mapping[str, Point]], set[str]]:
    """Return a function that selects, from the trials' latest points, the curves needed to judge them."""
    known = _judgeable(sweep, seen)

    def wanted(latest: Mapping[str, Point]) -> set[str]:
        new = [name for name in latest if name in known and _reaches(rule, sweep, name, latest[name], seen)]
        return set(sorted(new, key=lambda name: (name not in seen.running, name))[:MAX_CURVES_PER_READING])

    return wanted


def _reaches(rule: StoppingRule, sweep: SweepRecord, name: str, last: Point, seen: Observation) -> bool:
    """Return whether the trial has reached a new rung. Without steps, only its curve shows that."""
    if last.step <= 0:
        return name in seen.running or not any(name in values for values in _state(sweep).rungs.values())
    return bool(missing_rungs(rule, _state(sweep).rungs, name, last.step))


def _state(sweep: SweepRecord) -> EarlyStoppingState:
    return sweep.of(EarlyStoppingState)


def follow(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Report the trials that were stopped, decide which others to stop, and update the saved GPU-hours.

    The end of the last trials can be the end of the experiment: they are reported while the sweep stops.
    """
    plan = sweep.plan
    if plan is None or plan.space.stopping is None or not sweep.submitted:
        return sweep
    sweep = _reported(sweep, plan, seen)
    if sweep.phase is not Phase.STOPPING:
        sweep = _judged(sweep, plan, plan.space.stopping, seen, now)
    return sweep.change(EarlyStoppingState, saved_gpu_hours=round(_saved(sweep, plan, seen), 1))


def _reported(sweep: SweepRecord, plan: SweepPlan, seen: Observation) -> SweepRecord:
    """Report stopped trials once their pods are gone, except those that finished first."""
    state = _state(sweep)
    over = {name: stop for name, stop in state.ending.items() if name not in seen.held}
    if not over:
        return sweep
    early = {trial.name for trial in seen.trials if trial.state is TrialState.STOPPED_EARLY}
    done = {name: stop for name, stop in over.items() if name in early}
    left = {name: stop for name, stop in state.ending.items() if name not in over}
    sweep = sweep.change(EarlyStoppingState, ending=left, ended=state.ended | done)
    return sweep.enqueue(stopped(plan, done, seen)) if done else sweep


def _judged(
    sweep: SweepRecord, plan: SweepPlan, rule: StoppingRule, seen: Observation, now: datetime
) -> SweepRecord:
    if seen.reading is None or not seen.reading.curves:
        return _without_values(sweep, plan, rule, seen)
    known = _judgeable(sweep, seen)
    curves = {name: curve for name, curve in seen.reading.curves.items() if name in known}
    stoppable = {*(seen.live_names & seen.running)} - sweep.to_kill.keys()
    state = _state(sweep)
    space = plan.space
    objective = Objective(maximize=space.goal is Goal.MAXIMIZE, strategy=space.strategies[space.metric])
    rungs, verdicts = judge(rule, objective, state.rungs, curves, stoppable)
    stops = {verdict.trial: _stop(verdict, seen, now) for verdict in verdicts}
    if not rule.dry_run:
        values = {name: stop.value for name, stop in stops.items() if stop.value is not None}
        state = replace(state, rungs=rungs, ending=state.ending | stops)
        return sweep.put(state, stopped_values=sweep.stopped_values | values)
    sweep = sweep.put(replace(state, rungs=rungs, ended=state.ended | stops))
    return sweep.enqueue(stopped(plan, stops, seen)) if stops else sweep


def _judgeable(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the experiment's trials, except those that are (or in a dry run would be) stopped."""
    state = _state(sweep)
    return {*seen.trial_names} - state.ending.keys() - state.ended.keys()


def _stop(verdict: Verdict, seen: Observation, now: datetime) -> EarlyStop:
    since = next((p.running_since for p in seen.pods if p.job == verdict.trial and p.running), None)
    seconds = max(0.0, (now - since).total_seconds()) if since else 0.0
    cutoff = verdict.cutoff if math.isfinite(verdict.cutoff) else None
    return EarlyStop(
        step=verdict.step,
        value=verdict.value,
        cutoff=cutoff,
        others=verdict.others,
        seconds=seconds,
        stalled_since=verdict.stalled_since,
    )


def _saved(sweep: SweepRecord, plan: SweepPlan, seen: Observation) -> float:
    """Return the saved GPU-hours, against the mean of finished trials, or in a dry run the trial's time."""
    usual, own = usual_seconds(seen), run_times(seen)
    if usual is None:
        return _state(sweep).saved_gpu_hours
    seconds = sum(max(0.0, own.get(name, usual) - stop.seconds) for name, stop in _state(sweep).ended.items())
    return seconds * plan.trial_gpus / 3600


def _without_values(
    sweep: SweepRecord, plan: SweepPlan, rule: StoppingRule, seen: Observation
) -> SweepRecord:
    """Report once that a trial has finished although the metric was found for none."""
    reading = seen.reading
    if reading is None or reading.failures or not reading.read:
        return sweep
    if seen.trial_names & reading.latest.keys():
        return sweep
    # A reading from before the trial's end can be older than its run.
    finished = any(trial.ended and trial.ended.timestamp() < reading.at for trial in seen.succeeded)
    return sweep.enqueue_once("not_judged", not_judged(plan, rule)) if finished else sweep


def changes(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> RequiredChanges:
    """Stop the trials. Katib recreates a deleted Job until it has read the condition that says so."""
    ending = _state(sweep).ending
    if not ending:
        return RequiredChanges()
    early = [trial for trial in seen.live if trial.name in ending and trial.name not in sweep.to_kill]
    jobs = [job for job in seen.active_jobs if job.name in ending]
    values = {name: math.nan if stop.value is None else stop.value for name, stop in ending.items()}
    last = {name: (stop.step, values[name]) for name, stop in ending.items()}
    return RequiredChanges(
        patch=engine.stop_trials(
            plan, early, "stopped early", now, state=TrialState.STOPPED_EARLY, last=last
        ),
        delete=deletions(jobs, plan),
    )
