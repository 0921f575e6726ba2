"""What a sweep does about trials that are worse than the others while they run."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action, Command
from bot.core.curves import LiveReading, Point
from bot.core.events import EventKind, Result
from bot.core.record import Phase, dump, load
from bot.core.space import MetricSource
from bot.core.stopping import EarlyStop, StoppingRule
from bot.lifecycle.early_stopping import wanted_curves
from bot.lifecycle.freshness import needs_fresh_read
from bot.lifecycle.observation import Observation
from bot.lifecycle.required_changes import required_changes
from bot.messages.events import event_text
from bot.messages.parent import Links, parent
from bot.sweeps.observe_live import log_query
from k8s.jobs import JobState
from k8s.katib.status import STOPPED_EARLY, TrialState, read_trial
from tests.bot.factories import OWNER, PLAN
from tests.bot.lifecycle.observations import LATER, OPEN, RUNNING, a_job, a_pod, a_trial, after, kinds

ASHA = StoppingRule(name="asha", grace=1, factor=3)
NAMES = ("s-a", "s-b", "s-c")


def a_sweep(rule=ASHA, source=MetricSource.TENSORBOARD, **changes):
    space = replace(PLAN.space, stopping=rule, source=source)
    return replace(RUNNING, plan=replace(PLAN, space=space), **changes)


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
    assert sweep.ending_early == {"s-c": EarlyStop(step=1, value=0.9, cutoff=0.1, others=2, seconds=1800.0)}
    assert kinds(sweep) == []  # its GPUs aren't free yet
    changes = required_changes(sweep, Observation(**facts), LATER)
    [patch] = changes.patch
    condition = patch.body["status"]["conditions"][0]
    assert (patch.ref.name, patch.subresource) == ("s-c", "status")
    assert (condition["type"], condition["reason"]) == ("Killed", STOPPED_EARLY)
    assert [delete.ref.name for delete in changes.delete] == ["s-c"]
    assert needs_fresh_read(a_sweep(), sweep, Observation(**facts), LATER)
    assert load(dump(sweep)) == sweep


def test_trial_killed_with_sweepbots_reason_is_stopped_early_and_its_job_is_deleted():
    conditions = [{"type": "Killed", "status": "True", "reason": STOPPED_EARLY}]
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
    known["jobs"] += (a_job("s-d", JobState.COMPLETE, seconds=7200.0),)
    return after(before, **known | facts)


def test_a_stopped_trial_is_reported_with_cause_and_savings_once_its_pods_are_gone():
    sweep = stopped_sweep()
    assert kinds(sweep) == [EventKind.BETTER, EventKind.STOPPED_EARLY]
    assert event_text(sweep, sweep.outbox[1]) == (
        ":no_entry_sign: Sweepbot stopped 1 trial early (asha). Its GPUs are free.\n"
        "• s-c: val_loss 0.9 at step 1, worse than 0.1, the cutoff for the best 1/3 of 3 trials; "
        "about 1.5 GPU-hours saved"
    )
    assert (sweep.progress.stopped_early, sweep.saved_gpu_hours, sweep.ending_early) == (1, 1.5, {})
    text = parent(sweep, Links()).blocks[0]["text"]["text"]
    assert "1 stopped early" in text
    assert "Early stopping (asha) saved about 1.5 GPU-hours" in text


def test_a_trial_that_finished_meanwhile_is_not_reported_as_stopped():
    done = (*seen(ended=("s-c",))["trials"], a_trial("s-c", TrialState.SUCCEEDED, 0.9))
    sweep = stopped_sweep(trials=done, jobs=())
    assert kinds(sweep) == [EventKind.BETTER]
    assert (sweep.ended_early, sweep.ending_early) == ({}, {})


def test_nothing_is_judged_twice():
    once = after(a_sweep(), **seen(THIRD))
    assert after(once, **seen(THIRD)) == once


def test_a_trial_that_a_user_cancels_is_not_stopped_early_too():
    kill = Command(action=Action.KILL, user=OWNER, user_name="ada", trial="s-c")
    sweep = after(a_sweep(), **seen(THIRD), commands=(kill,))
    assert (sweep.to_kill, sweep.ending_early) == ({"s-c": OWNER}, {})


def test_a_dry_run_stops_nothing_and_says_once_what_it_would_have_stopped():
    dry = a_sweep(replace(ASHA, dry_run=True))
    sweep = after(dry, **seen(THIRD))
    assert event_text(sweep, sweep.outbox[0]).startswith(
        ":no_entry_sign: Dry run: asha would have stopped 1 trial early.\n• s-c: val_loss 0.9 at step 1"
    )
    assert required_changes(sweep, Observation(**seen(THIRD)), LATER).patch == ()
    later = after(replace(sweep, outbox=()), **seen(THIRD | {"s-c": 0.05}))
    assert (kinds(later), later.ended_early) == ([], sweep.ended_early)
    jobs = (a_job("s-a", JobState.COMPLETE, seconds=7200.0), a_job("s-c", JobState.COMPLETE, seconds=3600.0))
    over = tuple(a_trial(name, TrialState.SUCCEEDED, THIRD[name]) for name in NAMES)
    done = after(later, **seen(THIRD, trials=over, pods=(), jobs=jobs))
    assert done.saved_gpu_hours == 0.5  # its own hour without the half before it was judged
    best = replace(done.progress, best=Result(trial="s-c", value=0.1, parameters={}))
    assert (
        "Dry run: asha would have stopped 1 trial, including the best one, and saved about 0.5 GPU-hours"
        in (parent(replace(done, progress=best), Links()).blocks[0]["text"]["text"])
    )


FINISHED = replace(a_trial("s-d", TrialState.SUCCEEDED), ended=LATER - timedelta(minutes=1))


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({}, [EventKind.NOT_JUDGED]),
        ({"reading": LiveReading()}, []),  # MLflow hasn't answered yet
        ({"reading": read(failures=1)}, []),
        ({"reading": read(latest={"s-a": Point(1, 0.1)})}, []),
        ({"reading": read(at=(LATER - timedelta(minutes=2)).timestamp())}, []),  # while the trial ran
        ({"trials": tuple(a_trial(name) for name in NAMES)}, []),
    ],
)
def test_a_metric_that_mlflow_doesnt_have_is_reported_once_a_trial_has_finished(changes, reported):
    facts = seen(trials=(*map(a_trial, NAMES), FINISHED)) | changes
    sweep = after(a_sweep(), **facts)
    assert kinds(sweep) == reported
    assert kinds(after(replace(sweep, outbox=()), **facts)) == []
    if reported:
        assert "no run in MLflow has the metric `val_loss`. *Fix:* Log it" in event_text(
            sweep, sweep.outbox[0]
        )


def test_log_query_is_only_made_where_the_rule_needs_lines_of_the_output():
    facts = Observation(**seen())
    stdout = a_sweep(source=MetricSource.STDOUT).plan
    query = log_query(stdout, facts)
    assert [(each.trial, each.pod, each.finished) for each in query.sources] == [
        (name, f"{name}-x", False) for name in NAMES
    ]
    assert re.search(query.pattern, "epoch 3 val_loss: 0.5").groups() == ("val_loss", "0.5")
    assert query.strategy == "min"
    assert log_query(a_sweep().plan, facts) is None
    assert log_query(a_sweep(None, source=MetricSource.STDOUT).plan, facts) is None


def test_not_judged_with_metrics_from_the_output_names_the_line_to_print():
    facts = seen(trials=(*map(a_trial, NAMES), FINISHED))
    sweep = after(a_sweep(source=MetricSource.STDOUT), **facts)
    assert "no line of its output has the metric `val_loss`. *Fix:* Print it" in event_text(
        sweep, sweep.outbox[0]
    )


def test_a_sweep_without_a_rule_judges_nothing():
    sweep = after(a_sweep(None), **seen(THIRD))
    assert (sweep.rungs, sweep.ending_early) == ({}, {})


def test_only_curves_that_can_change_a_decision_are_requested():
    facts = Observation(**seen(trials=(*map(a_trial, NAMES), a_trial("s-d", TrialState.SUCCEEDED, 0.5))))
    sweep = a_sweep(rungs={1: {"s-a": 0.1, "s-b": 0.2}, 3: {"s-a": 0.1}}, ended_early={"s-c": None})
    latest = {"s-a": Point(8, 0.1), "s-b": Point(4, 0.2), "s-c": Point(9, 1.0), "s-d": Point(2, 0.5)}
    wanted = wanted_curves(sweep, facts)
    assert wanted(latest | {"someone-elses": Point(9, 0.1)}) == {"s-b", "s-d"}
    assert wanted({"s-a": Point(0, 0.1), "s-d": Point(0, 0.5)}) == {"s-a", "s-d"}  # logged without steps
    assert wanted_curves(a_sweep(None), facts)(latest) == set()


def test_a_held_sweep_forgets_the_rungs_of_its_failed_experiment():
    held = a_sweep(phase=Phase.HELD, rungs={1: {"s-a": 0.1}}, gated=True)
    retry = Command(action=Action.RETRY, user=OWNER, user_name="ada")
    assert after(held, commands=(retry,)).rungs == {}
