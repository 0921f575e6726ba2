"""What a sweep does about trials that are worse than the others while they run."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given

from bot.core.commands import Action, Command
from bot.core.curves import LiveReading, Point
from bot.core.events import Result
from bot.core.record import Phase, dump, load
from bot.core.space import MetricSource
from bot.core.stopping import EarlyStop, StoppingRule
from bot.sweep.decisions.parent_message import Links, parent
from bot.sweep.decisions.required_changes import needs_fresh_read, required_changes
from bot.sweep.features.early_stopping import decide
from bot.sweep.features.early_stopping.decide import EarlyStoppingState, wanted_curves
from bot.sweep.model.observation import Observation
from bot.sweep.results.live import MAX_WANTED
from k8s.engine import TrialState
from k8s.jobs import JobState
from k8s.katib.spec import STOPPED_STEP, STOPPED_VALUE
from k8s.katib.status import read_trial
from tests.bot.factories import OWNER, PLAN
from tests.bot.platform.slack.test_escaping import NASTY, escaped, sweeps
from tests.bot.sweep.model.observations import (
    DONE,
    LATER,
    OPEN,
    RUNNING,
    a_job,
    a_pod,
    a_trial,
    after,
    kinds,
)

ASHA = StoppingRule(name="asha", grace=1, factor=3)
MEDIAN = replace(ASHA, name="median")
NAMES = ("s-a", "s-b", "s-c")


def a_sweep(rule=ASHA, source=MetricSource.TENSORBOARD, **changes):
    space = replace(PLAN.space, stopping=rule, source=source)
    return replace(RUNNING, plan=replace(PLAN, space=space), **changes)


def state(sweep):
    return sweep.of(EarlyStoppingState)


def read(**changes):
    """A reading of now."""
    return LiveReading(**{"read": True, "at": LATER.timestamp()} | changes)


def seen(curves=None, ended=(), **changes):
    """Three trials, of which the last has run for half an hour, and what they reported."""
    points = {name: (Point(1, value, n),) for n, (name, value) in enumerate((curves or {}).items())}
    facts = {
        "experiment": OPEN,
        "trials": tuple(a_trial(name) for name in NAMES if name not in ended),
        "pods": tuple(
            a_pod(name, running_since=LATER - timedelta(minutes=minutes))
            for name, minutes in zip(NAMES, (50, 40, 30), strict=True)
            if name not in ended
        ),
        "jobs": tuple(a_job(name) for name in NAMES if name not in ended),
        "reading": read(latest={n: c[-1] for n, c in points.items()}, curves=points),
    }
    return facts | changes


THIRD = {"s-a": 0.1, "s-b": 0.2, "s-c": 0.9}


def test_the_worst_trial_is_ended_by_its_condition_first_and_then_its_job():
    facts = seen(THIRD)
    sweep = after(a_sweep(), **facts)
    assert state(sweep).ending == {"s-c": EarlyStop(step=1, value=0.9, cutoff=0.1, others=2, seconds=1800.0)}
    assert kinds(sweep) == []  # its GPUs aren't free yet
    assert sweep.stopped_values == {"s-c": 0.9}
    changes = required_changes(sweep, Observation(**facts), LATER)
    [patch] = changes.patch
    condition = patch.body["status"]["conditions"][0]
    assert (patch.ref.name, patch.subresource) == ("s-c", "status")
    assert (condition["type"], condition["reason"]) == ("Killed", "SweepbotStoppedEarly")
    values = {one["name"]: one["latest"] for one in patch.body["status"]["observation"]["metrics"]}
    assert values == {STOPPED_STEP: "1", STOPPED_VALUE: "0.9"}
    assert [delete.ref.name for delete in changes.delete] == ["s-c"]
    assert needs_fresh_read(a_sweep(), sweep, Observation(**facts), LATER)
    assert load(dump(sweep)) == sweep


def test_trial_killed_with_sweepbots_reason_is_stopped_early_and_its_job_is_deleted():
    conditions = [{"type": "Killed", "status": "True", "reason": "SweepbotStoppedEarly"}]
    raw = {"metadata": {"name": "s-c", "resourceVersion": "7"}, "status": {"conditions": conditions}}
    trial = read_trial(raw, {"loss": "min"})
    assert (trial.state, trial.killed) == (TrialState.STOPPED_EARLY, True)
    facts = seen(trials=(trial,), pods=())
    changes = required_changes(a_sweep(), Observation(**facts | {"jobs": (a_job("s-c"),)}), LATER)
    assert [delete.ref.name for delete in changes.delete] == ["s-c"]


def stopped_sweep(sweep=None, **facts):
    """The pods of the worst are gone; another trial had finished after two hours."""
    before = after(sweep or a_sweep(), **seen(THIRD))
    done = (a_trial("s-d", TrialState.SUCCEEDED, 0.5), a_trial("s-c", TrialState.STOPPED_EARLY))
    known = seen(THIRD, ended=("s-c",))
    known["trials"] += done
    known["jobs"] += (a_job("s-d", JobState.COMPLETE, seconds=7290.2),)
    return after(before, **known | facts)


def test_a_stopped_trial_is_reported_with_cause_and_savings_once_its_pods_are_gone():
    sweep = stopped_sweep(replace(a_sweep(), plan=replace(a_sweep().plan, gpus=2)))
    assert kinds(sweep) == ["stopped_early"]
    assert sweep.outbox[0].text == (
        ":black_square_for_stop: Sweepbot stopped 1 trial early (asha). Its GPUs are free.\n"
        "• s-c: val_loss 0.9 at step 1, worse than 0.1, the cutoff for the best 1/3 of 3 trials; "
        "about 3.1 GPU-hours saved"
    )
    assert (sweep.progress.stopped_early, state(sweep).saved_gpu_hours, state(sweep).ending) == (1, 3.1, {})
    text = parent(sweep, Links()).blocks[0]["text"]["text"]
    assert "1 stopped early" in text
    assert "Early stopping (asha) saved about 3.1 GPU-hours" in text
    diverged = EarlyStop(step=1, value=None, cutoff=None, others=2, seconds=0.0)
    assert decide.stopped_line(a_sweep(MEDIAN).plan, "s-c", diverged, 180.0) == (
        "s-c: val_loss no finite value at step 1, worse than the median of 2 trials; "
        "about 0.1 GPU-hours saved"
    )


def test_stalled_trial_is_reported_with_the_step_since_when():
    curves = {"s-a": (Point(3, 0.1, 0.0),), "s-b": (Point(1, 0.3, 1.0), Point(3, 0.4, 2.0))}
    facts = seen() | {"reading": read(latest={n: c[-1] for n, c in curves.items()}, curves=curves)}
    stopping = after(a_sweep(), **facts)
    assert load(dump(stopping)) == stopping
    trials = (*map(a_trial, ("s-a", "s-c")), a_trial("s-b", TrialState.STOPPED_EARLY))
    sweep = after(stopping, **seen(ended=("s-b",)) | {"trials": trials})
    line = "• s-b: val_loss 0.3 at step 3, worse than 0.1, the best so far, and no better than at step 1"
    assert sweep.outbox[0].text.endswith(line)


def test_trials_whose_end_is_the_experiments_are_reported_before_the_end_of_the_sweep():
    """Katib counts a stopped trial as soon as it has the condition; its pod takes longer."""
    before = after(a_sweep(to_kill={"s-b": OWNER}), **seen(THIRD))
    trials = (
        a_trial("s-a", TrialState.SUCCEEDED, 0.1),
        a_trial("s-b", TrialState.KILLED),
        a_trial("s-c", TrialState.STOPPED_EARLY),
    )
    done = (a_job("s-a", JobState.COMPLETE, seconds=7200.0),)
    held = seen(THIRD, trials=trials, experiment=DONE, jobs=(*done, a_job("s-b"), a_job("s-c")))
    stopping = after(before, **held)
    assert (stopping.phase, set(state(stopping).ending)) == (Phase.STOPPING, {"s-c"})
    ended = after(stopping, **held | {"pods": (), "jobs": done})
    assert ended.phase is Phase.SUCCEEDED
    assert kinds(ended) == [
        "stopped_early",
        "trial_killed",
        "results",
        "result_files",
    ]
    assert "Early stopping (asha) saved about 1.5 GPU-hours" in ended.outbox[2].text


def test_trial_is_judged_once_and_neither_when_cancelled_nor_finished_meanwhile():
    done = (*seen(ended=("s-c",))["trials"], a_trial("s-c", TrialState.SUCCEEDED, 0.9))
    sweep = stopped_sweep(trials=done, jobs=())
    assert kinds(sweep) == []
    assert (state(sweep).ended, state(sweep).ending) == ({}, {})
    once = after(a_sweep(), **seen(THIRD))
    assert after(once, **seen(THIRD)) == once
    kill = Command(action=Action.KILL, user=OWNER, user_name="ada", trial="s-c")
    sweep = after(a_sweep(), **seen(THIRD), commands=(kill,))
    assert (sweep.to_kill, state(sweep).ending) == ({"s-c": OWNER}, {})
    sweep = after(a_sweep(None), **seen(THIRD))
    assert (state(sweep).rungs, state(sweep).ending) == ({}, {})


def test_a_dry_run_stops_nothing_and_says_once_what_it_would_have_stopped():
    dry = a_sweep(replace(ASHA, dry_run=True))
    assert decide.savings(dry) == ""
    sweep = after(dry, **seen(THIRD))
    assert sweep.outbox[0].text.startswith(
        ":black_square_for_stop: Dry run: asha would have stopped 1 trial early.\n"
        "• s-c: val_loss 0.9 at step 1"
    )
    assert required_changes(sweep, Observation(**seen(THIRD)), LATER).patch == ()
    later = after(replace(sweep, outbox=()), **seen(THIRD | {"s-c": 0.05}))
    assert (kinds(later), state(later).ended) == ([], state(sweep).ended)
    jobs = (a_job("s-a", JobState.COMPLETE, seconds=7200.0), a_job("s-c", JobState.COMPLETE, seconds=3600.0))
    over = tuple(a_trial(name, TrialState.SUCCEEDED, THIRD[name]) for name in NAMES)
    done = after(later, **seen(THIRD, trials=over, pods=(), jobs=jobs))
    assert state(done).saved_gpu_hours == 0.5  # its own hour without the half before it was judged
    assert "stopped 1 trial, and saved" in decide.savings(done)
    best = replace(done.progress, best=Result(trial="s-c", value=0.1, parameters={}))
    assert (
        "Dry run: asha would have stopped 1 trial, including the best one, and saved about 0.5 GPU-hours"
        in (parent(replace(done, progress=best), Links()).blocks[0]["text"]["text"])
    )


FINISHED = replace(a_trial("s-d", TrialState.SUCCEEDED), ended=LATER - timedelta(minutes=1))


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({}, ["not_judged"]),
        ({"reading": LiveReading()}, []),  # MLflow hasn't answered yet
        ({"reading": read(failures=1)}, []),
        ({"reading": read(latest={"s-a": Point(1, 0.1)})}, []),
        ({"reading": read(at=(LATER - timedelta(minutes=1)).timestamp())}, []),  # while the trial ran
        ({"trials": tuple(a_trial(name) for name in NAMES)}, []),
    ],
)
def test_a_metric_that_mlflow_doesnt_have_is_reported_once_a_trial_has_finished(changes, reported):
    facts = seen(trials=(*map(a_trial, NAMES), FINISHED)) | changes
    sweep = after(a_sweep(), **facts)
    assert kinds(sweep) == reported
    assert kinds(after(replace(sweep, outbox=()), **facts)) == []
    if reported:
        assert "no MLflow run has the metric `val_loss`. *Fix:* Log it" in sweep.outbox[0].text


def test_sweep_without_curves_names_what_to_print_or_write():
    facts = seen(trials=(*map(a_trial, NAMES), FINISHED))
    sweep = after(a_sweep(source=MetricSource.STDOUT), **facts)
    assert "no line of its output has the metric `val_loss`. *Fix:* Print it" in sweep.outbox[0].text
    sweep = after(with_reader(a_sweep()), **facts)
    assert "no TensorBoard file has the metric `val_loss`. *Fix:* Log it while" in sweep.outbox[0].text


def with_reader(sweep):
    spec = sweep.plan.experiment["spec"] | {"metricsCollectorSpec": {"collector": {"kind": "Push"}}}
    return replace(sweep, plan=replace(sweep.plan, experiment={**sweep.plan.experiment, "spec": spec}))


def test_curves_that_can_change_a_decision_are_requested_those_of_running_trials_first():
    facts = Observation(**seen(trials=(*map(a_trial, NAMES), a_trial("s-d", TrialState.SUCCEEDED, 0.5))))
    known = EarlyStoppingState(
        rungs={1: {"s-a": 0.1, "s-b": 0.2}, 3: {"s-a": 0.1}},
        ended={"s-c": EarlyStop(step=1, value=None, cutoff=None, others=2, seconds=9.0)},
    )
    sweep = a_sweep().put(known)
    latest = {"s-a": Point(8, 0.1), "s-b": Point(4, 0.2), "s-c": Point(9, 1.0), "s-d": Point(2, 0.5)}
    wanted = wanted_curves(ASHA, sweep, facts)
    assert asyncio.run(decide.observe(sweep, facts, None)).wanted_curves(latest) == wanted(latest)
    assert asyncio.run(decide.observe(a_sweep(None), facts, None)) == facts
    assert wanted(latest | {"someone-elses": Point(9, 0.1)}) == {"s-b", "s-d"}
    assert wanted({"s-a": Point(0, 0.1), "s-d": Point(0, 0.5)}) == {"s-a", "s-d"}  # logged without steps
    assert wanted({"s-a": Point(1, 0.1)}) == set()
    ended = [a_trial(f"s-{number:03}", TrialState.SUCCEEDED, 0.5) for number in range(MAX_WANTED)]
    pods = (a_pod("s-z", running_since=LATER),)
    facts = Observation(**seen(trials=(*ended, a_trial("s-z")), pods=pods))
    latest = {trial.name: Point(2, 0.5) for trial in facts.trials}
    wanted = wanted_curves(ASHA, a_sweep(), facts)(latest)
    assert (len(wanted), "s-z" in wanted) == (MAX_WANTED, True)


@pytest.mark.features("gate")
def test_a_held_sweep_forgets_the_rungs_of_its_failed_experiment():
    held = a_sweep(phase=Phase.HELD, first_only=True).put(EarlyStoppingState(rungs={1: {"s-a": 0.1}}))
    retry = Command(action=Action.RETRY, user=OWNER, user_name="ada")
    assert state(after(held, commands=(retry,))).rungs == {}


@given(sweeps(), NASTY)
def test_external_text_is_escaped(sweep, trial):
    stop = EarlyStop(step=1, value=0.9, cutoff=0.1, others=2, seconds=60.0)
    plan = replace(sweep.plan, space=replace(sweep.plan.space, stopping=ASHA))
    names = {f"{trial}{i}": stop for i in range(50)}
    escaped(decide.stopped(plan, names, Observation()).text)
    escaped(decide.not_judged(plan, ASHA).text)
