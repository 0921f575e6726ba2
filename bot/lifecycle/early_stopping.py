"""Stop trials early, based on the values that they report while they run (`bot.core.stopping`). Pure.

A trial to stop stays in the record until its pods are gone, so a worker can die at any call. Its condition in
the cluster shows that it was stopped early rather than cancelled.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from bot.core.curves import Point
from bot.core.events import Event, EventKind
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.space import Goal, SearchSpace
from bot.core.stopping import EarlyStop, Objective, StoppingRule, Verdict, judge, missing_rungs
from bot.lifecycle.observation import Observation
from bot.lifecycle.time_left import run_times, usual_seconds
from bot.messages.early_stopping import stopped_line
from k8s.katib.status import Trial, TrialState

MAX_CURVES_PER_READING = 100  # the next reading, a minute later, has the others


def wanted_curves(sweep: SweepRecord, seen: Observation) -> Callable[[Mapping[str, Point]], set[str]]:
    """Return a function that selects, from the trials' latest points, the curves needed to judge them."""
    rule = sweep.plan.space.stopping if sweep.plan else None
    known = _judgeable(sweep, seen)

    def wanted(latest: Mapping[str, Point]) -> set[str]:
        if rule is None:
            return set()
        new = [name for name in latest if name in known and _reaches(rule, sweep, name, latest[name], seen)]
        return set(sorted(new, key=lambda name: (name not in seen.running, name))[:MAX_CURVES_PER_READING])

    return wanted


def _reaches(rule: StoppingRule, sweep: SweepRecord, name: str, last: Point, seen: Observation) -> bool:
    """Return whether the trial has reached a new rung. Without steps, only its curve shows that."""
    if last.step <= 0:
        return name in seen.running or not any(name in values for values in sweep.rungs.values())
    return bool(missing_rungs(rule, sweep.rungs, name, last.step))


def follow_early_stopping(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Decide which trials to stop, report those that were stopped, and update the saved GPU-hours."""
    plan = sweep.plan
    if plan is None or plan.space.stopping is None:
        return sweep
    sweep = _judged(_reported(sweep, plan, seen), plan, plan.space.stopping, seen, now)
    return replace(sweep, saved_gpu_hours=round(_saved(sweep, plan, seen), 1))


def with_stopped_values(sweep: SweepRecord, trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Give trials that Sweepbot stopped the value by which they were judged; Katib has none of them."""
    stops = sweep.ended_early | sweep.ending_early
    return tuple(
        replace(trial, value=stops[trial.name].value)
        if trial.value is None and trial.state is TrialState.STOPPED_EARLY and trial.name in stops
        else trial
        for trial in trials
    )


def _reported(sweep: SweepRecord, plan: SweepPlan, seen: Observation) -> SweepRecord:
    """Report stopped trials once their pods are gone, except those that finished first."""
    over = {name: stop for name, stop in sweep.ending_early.items() if name not in seen.held}
    if not over:
        return sweep
    early = {trial.name for trial in seen.trials if trial.state is TrialState.STOPPED_EARLY}
    stopped = {name: stop for name, stop in over.items() if name in early}
    left = {name: stop for name, stop in sweep.ending_early.items() if name not in over}
    sweep = replace(sweep, ending_early=left, ended_early=sweep.ended_early | stopped)
    return sweep.enqueue(_event(plan, stopped, seen)) if stopped else sweep


def _judged(
    sweep: SweepRecord, plan: SweepPlan, rule: StoppingRule, seen: Observation, now: datetime
) -> SweepRecord:
    if seen.reading is None or not seen.reading.curves:
        return _without_values(sweep, seen)
    known = _judgeable(sweep, seen)
    curves = {name: curve for name, curve in seen.reading.curves.items() if name in known}
    stoppable = {trial.name for trial in seen.live} & seen.running - sweep.to_kill.keys()
    rungs, verdicts = judge(rule, _objective(plan.space), sweep.rungs, curves, stoppable)
    stops = {verdict.trial: _stop(verdict, seen, now) for verdict in verdicts}
    sweep = replace(sweep, rungs=rungs)
    if not rule.dry_run:
        return replace(sweep, ending_early=sweep.ending_early | stops)
    sweep = replace(sweep, ended_early=sweep.ended_early | stops)
    return sweep.enqueue(_event(plan, stops, seen)) if stops else sweep


def _judgeable(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the experiment's trials, except those that are (or in a dry run would be) stopped."""
    return {trial.name for trial in seen.trials} - sweep.ending_early.keys() - sweep.ended_early.keys()


def _objective(space: SearchSpace) -> Objective:
    return Objective(maximize=space.goal is Goal.MAXIMIZE, strategy=space.strategies[space.metric])


def _stop(verdict: Verdict, seen: Observation, now: datetime) -> EarlyStop:
    since = next((p.running_since for p in seen.pods if p.job == verdict.trial and p.running), None)
    seconds = max(0.0, (now - since).total_seconds()) if since else 0.0
    cutoff = verdict.cutoff if math.isfinite(verdict.cutoff) else None
    return EarlyStop(
        step=verdict.step, value=verdict.value, cutoff=cutoff, others=verdict.others, seconds=seconds
    )


def _event(plan: SweepPlan, stops: Mapping[str, EarlyStop], seen: Observation) -> Event:
    usual = usual_seconds(seen)
    lines = (stopped_line(plan, name, stop, usual) for name, stop in stops.items())
    return Event(kind=EventKind.STOPPED_EARLY, text="\n".join(lines), more=len(stops) - 1)


def _saved(sweep: SweepRecord, plan: SweepPlan, seen: Observation) -> float:
    """Return the saved GPU-hours, against the mean of finished trials, or in a dry run the trial's time."""
    usual, own = usual_seconds(seen), run_times(seen)
    if usual is None:
        return sweep.saved_gpu_hours
    seconds = sum(max(0.0, own.get(name, usual) - stop.seconds) for name, stop in sweep.ended_early.items())
    return seconds * plan.trial_gpus / 3600


def _without_values(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    """Report once that a trial has finished although the metric was found for none."""
    reading, sent = seen.reading, sweep.sent_keys
    names = {trial.name for trial in seen.trials}
    if reading is None or reading.failures or not reading.read or names & reading.latest.keys():
        return sweep
    # A reading from before the trial's end can be older than its run.
    finished = any(trial.ended and trial.ended.timestamp() < reading.at for trial in seen.succeeded)
    if not finished or EventKind.NOT_JUDGED in sent:
        return sweep
    return sweep.enqueue(Event(kind=EventKind.NOT_JUDGED), sent_keys=(*sent, EventKind.NOT_JUDGED))
