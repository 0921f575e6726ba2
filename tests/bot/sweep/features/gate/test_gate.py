"""The gate: when it opens, when it holds a sweep and with which text, and what a new attempt keeps."""

from dataclasses import replace

import pytest
from hypothesis import given

from bot.core.budget import Budget
from bot.core.commands import Action, AuditEntry, Command
from bot.core.events import Event, Progress, Result
from bot.core.record import Phase
from bot.sweep.decisions.commands import apply_command
from bot.sweep.decisions.parent_message import Links, buttons, parent
from bot.sweep.decisions.required_changes import required_changes
from bot.sweep.features.gate import decide
from bot.sweep.features.gate.decide import GateSeen, GateState, follow, is_held_or_will_be, planned
from bot.sweep.model.observation import Observation
from k8s.engine import End, TrialState
from tests.bot.factories import CONFIG, NOW, OWNER, PLAN, a_sweep
from tests.bot.platform.slack.test_escaping import NASTY, escaped, sweeps
from tests.bot.sweep.model.observations import (
    COUNTS,
    DONE,
    FAILED,
    LATER,
    RAW,
    a_job,
    a_pod,
    a_trial,
    after,
    an_experiment,
)
from tests.cases import cases

ONE = RAW | {"spec": dict.fromkeys(COUNTS, 1)}
GATED = a_sweep(Phase.RUNNING, submitted=True, first_only=True)
UNGATED = replace(GATED, first_only=False)
DRAINED = replace(GATED, draining="drained")
OPEN = an_experiment(ONE)
BROKEN = an_experiment(ONE, FAILED)
COMPLETE = an_experiment(ONE, DONE)
FAILED_TRIAL = a_trial("t1", TrialState.FAILED)
STARTED = Observation(experiment=OPEN, trials=(a_trial("t1"),))
HEALTHY = STARTED.put(GateSeen(healthy="t1"))
FAILED_SEEN = Observation(experiment=BROKEN, trials=(FAILED_TRIAL,))
HOLD = "3 other trials didn't start."
HELD = replace(
    GATED.put(GateState(hold=HOLD)),
    phase=Phase.HELD,
    reason="first trial failed",
    progress=Progress(failed=1),
)
HELD_EVENT = Event(
    kind="held",
    text=(
        f":warning: On hold: first trial failed. {HOLD} "
        "*Fix:* Decide with the buttons at the top of this thread."
    ),
)
OPENED_BY = Event(kind="gate_opened", text=":runner: *ada* started all trials: 4 trials.")
RETRIED = Event(kind="retried", text=":hourglass_flowing_sand: *ada* is retrying the first trial.")


def applied(sweep, action):
    command = Command(action=action, user=OWNER, user_name="ada")
    return apply_command(sweep, command, Observation(), CONFIG, LATER)


def shown(sweep):
    return parent(sweep, Links()).blocks[0]["text"]["text"].splitlines()


@pytest.mark.parametrize("gate", [True, False])
def test_planned_sweep_runs_one_trial_first_if_its_space_says_so(gate):
    sweep = a_sweep(Phase.OPENING, plan=replace(PLAN, space=replace(PLAN.space, gate=gate)))
    assert planned(sweep, CONFIG) == replace(sweep, first_only=gate)


@pytest.mark.parametrize(("gated", "counts"), [(True, dict.fromkeys(COUNTS, 1)), (False, COUNTS)])
def test_experiment_of_a_gated_sweep_is_created_for_one_trial(gated, counts):
    pending = a_sweep(Phase.PENDING, image="i", first_only=gated)
    [made] = required_changes(pending, Observation(), NOW).create
    assert {key: made["spec"][key] for key in COUNTS} == counts
    first = "○ First trial runs alone" if gated else "○ First trial"
    assert after(pending, experiment=OPEN).steps["first"] == first


@cases(
    ("sweep", "seen"),
    [
        (replace(GATED, plan=None), HEALTHY),
        (GATED, replace(HEALTHY, experiment=None)),
        (replace(GATED, submitted=False), HEALTHY),
        (DRAINED, HEALTHY),
        (DRAINED, FAILED_SEEN),
        (UNGATED, HEALTHY),
        (UNGATED, replace(FAILED_SEEN, experiment=replace(COMPLETE, end=End.DRAINED))),
        (GATED, STARTED),
        (GATED, replace(FAILED_SEEN, pods=(a_pod("t1"),))),
        (GATED, replace(FAILED_SEEN, trials=())),
        (GATED, replace(FAILED_SEEN, experiment=replace(BROKEN, end=End.DRAINED))),
        (GATED, replace(HEALTHY, experiment=replace(COMPLETE, end=End.TARGET))),
        (GATED, replace(FAILED_SEEN, trials=(FAILED_TRIAL, a_trial("t2")))),
        (GATED, replace(FAILED_SEEN, trials=(FAILED_TRIAL, a_trial("t2", TrialState.SUCCEEDED, 0.5)))),
    ],
)
def test_follow_without_a_decision_changes_nothing(sweep, seen):
    assert follow(sweep, seen, LATER) == sweep


@pytest.mark.parametrize("experiment", [OPEN, BROKEN])
@pytest.mark.parametrize("total", [PLAN.space.max_trials, PLAN.space.max_trials + 1])
def test_follow_of_an_experiment_that_is_open_already_reports_nothing(experiment, total):
    raised = replace(experiment, max_trials=total)
    assert follow(GATED, replace(FAILED_SEEN, experiment=raised), LATER) == UNGATED


@pytest.mark.parametrize(
    "seen",
    [
        HEALTHY,
        replace(STARTED, trials=(a_trial("t1", TrialState.SUCCEEDED, 0.5),)),
        Observation(experiment=COMPLETE, trials=(a_trial("t1", TrialState.SUCCEEDED, 0.5),)),
    ],
)
def test_healthy_first_trial_starts_the_others(seen):
    opened = follow(GATED, seen, LATER)
    assert opened == UNGATED.step(first="✓ First trial healthy").enqueue(extending=True)
    [patch] = required_changes(opened, seen, LATER).patch
    assert (patch.ref, patch.body) == (PLAN.experiment_ref, {"spec": COUNTS})


@pytest.mark.parametrize("gated", [True, False])
def test_failed_first_trial_holds_the_sweep(gated):
    sweep = replace(GATED, first_only=gated, extending=True)
    assert follow(sweep, FAILED_SEEN, LATER) == replace(HELD, since=LATER, outbox=(HELD_EVENT,))


@pytest.mark.parametrize(
    ("trials", "cause", "text", "reason"),
    [
        ((FAILED_TRIAL,), "ValueError: x_1", "first trial failed. 3 other", "ValueError: x_1"),
        ((FAILED_TRIAL,), "", "first trial failed. 3 other", "first trial failed"),
        (
            (a_trial("t1", TrialState.KILLED),),
            "ValueError",
            "first trial was stopped. 3 other",
            "first trial was stopped",
        ),
        (
            (a_trial("t0", TrialState.KILLED), FAILED_TRIAL),
            "ValueError",
            "first trial failed. 3 other",
            "ValueError",
        ),
    ],
)
def test_held_sweep_has_the_cause_of_a_failed_trial_in_its_state_alone(trials, cause, text, reason):
    held = follow(replace(GATED, cause=cause), replace(FAILED_SEEN, trials=trials), LATER)
    [event] = held.outbox
    assert event.text.startswith(f":warning: On hold: {text}")
    assert held.reason == reason


@pytest.mark.parametrize(
    ("gpus", "seconds", "max_failed", "parallel", "text"),
    [
        (2, 3600, 2, 2, "2 trials could have failed: 4.0 GPU-hours."),
        (2, 3600, 0, 2, "1 trial could have failed: 2.0 GPU-hours."),
        (2, 3600, 3, 3, "3 trials could have failed: 6.0 GPU-hours."),
        (1, 90, 2, 2, "2 trials could have failed: 0.1 GPU-hours."),
        (1, 89, 2, 2, ""),
        (0, 3600, 2, 2, ""),
        (2, None, 2, 2, ""),
    ],
)
def test_hold_estimates_the_gpu_hours_of_all_trials_without_the_gate(
    gpus, seconds, max_failed, parallel, text
):
    space = replace(PLAN.space, max_failed=max_failed, parallel=parallel)
    pods = (a_pod("t1", finished=True, seconds=seconds), a_pod("t0", finished=True, seconds=1))
    sweep = replace(GATED, plan=replace(PLAN, space=space, gpus=gpus))
    held = follow(sweep, replace(FAILED_SEEN, pods=pods), LATER)
    assert held.of(GateState).hold == f"{HOLD}{f' Without the gate, {text}' if text else ''}"


@cases(
    ("sweep", "seen", "stays"),
    [
        (replace(GATED, phase=Phase.HELD), HEALTHY, True),
        (GATED, FAILED_SEEN, True),
        (GATED, HEALTHY, False),
        (GATED, replace(FAILED_SEEN, trials=(FAILED_TRIAL, a_trial("t2"))), False),
        (replace(GATED, draining="drained"), FAILED_SEEN, False),
        (UNGATED, FAILED_SEEN, True),
        (UNGATED, replace(FAILED_SEEN, experiment=COMPLETE), False),
        (GATED, replace(FAILED_SEEN, experiment=FAILED), False),
        (GATED, replace(FAILED_SEEN, experiment=None), False),
        (replace(GATED, plan=None), FAILED_SEEN, False),
    ],
)
def test_sweep_continues_while_held_or_with_a_failed_first_trial(sweep, seen, stays):
    assert is_held_or_will_be(sweep, seen) is stays


def test_open_of_a_running_sweep_raises_the_experiments_counts():
    opened = applied(GATED, Action.OPEN)
    assert opened == UNGATED.enqueue(OPENED_BY, extending=True, audit_log=opened.audit_log)
    built = a_sweep(Phase.BUILDING, first_only=True)
    assert applied(built, Action.OPEN).extending is False, "the experiment is created with all counts"


@pytest.mark.parametrize(
    ("action", "first_only", "event"), [(Action.OPEN, False, OPENED_BY), (Action.RETRY, True, RETRIED)]
)
def test_open_or_retry_of_a_held_sweep_continues_in_a_new_experiment(action, first_only, event):
    held = replace(
        HELD,
        failure="Exit code 1.",
        progress=Progress(failed=1, best=Result(trial="t1", value=0.5, parameters={})),
        attempt_features={"health": "{}"},
        sent_keys=("trial_failed/crash", "first_failed", "trouble/pending"),
        outbox=(HELD_EVENT,),
    )
    again = applied(held, action)
    assert again.plan.experiment["metadata"]["name"] == "lr-brave-otter-2"
    assert again == a_sweep(
        Phase.PENDING,
        since=LATER,
        attempt=2,
        plan=again.plan,
        first_only=first_only,
        sent_keys=("trouble/pending",),
        outbox=(HELD_EVENT, event),
        audit_log=again.audit_log,
    )


def test_new_attempt_ignores_pods_of_the_failed_experiment():
    again = replace(applied(HELD, Action.RETRY), submitted=True)
    old, new = "lr-brave-otter-abc", "lr-brave-otter-2-xyz"
    left = (a_pod(old, running_since=NOW), a_job(old))
    assert after(again, experiment=OPEN, pods=left[:1], jobs=left[1:]).phase is Phase.PENDING
    started = after(again, experiment=OPEN, pods=(*left[:1], a_pod(new, running_since=NOW)))
    assert (started.phase, started.first_only) == (Phase.RUNNING, True)


@pytest.mark.parametrize(
    ("sweep", "action", "why"),
    [
        (UNGATED, Action.OPEN, "`lr-brave-otter` isn't waiting for its first trial."),
        (GATED, Action.RETRY, "`lr-brave-otter` isn't on hold."),
        (HELD, Action.DRAIN, "`lr-brave-otter` is on hold."),
    ],
)
def test_command_about_the_gate_is_denied_in_other_states(sweep, action, why):
    [event] = applied(sweep, action).outbox
    assert (event.kind, event.text) == ("not_allowed", why)


def test_parent_shows_the_hold_or_that_the_others_wait():
    assert shown(HELD)[:2] == [":warning: *lr-brave-otter* · On hold: first trial failed", HOLD]
    labels = [each["text"]["text"] for each in buttons(HELD)]
    assert labels == ["Run all anyway", "Try again", "Cancel sweep", "Logs"]
    [effect] = [
        each["confirm"]["text"]["text"] for each in buttons(HELD) if each["action_id"] == "open_sweep"
    ]
    assert effect == "Starts all 4 trials of lr-brave-otter, although the first one failed."
    line = "One trial runs first. The others start once it is healthy."
    others = (
        UNGATED,
        HELD,
        DRAINED,
        replace(GATED, phase=Phase.CANCELLED),
        replace(GATED, failure="Exit 1."),
    )
    assert [line in shown(sweep) for sweep in (GATED, *others)] == [True, *[False] * len(others)]
    limited = replace(GATED, plan=replace(GATED.plan, budget=Budget(gpu_hours=9)))
    assert line.replace("healthy", "healthy, as the budget allows") in shown(limited)


def test_drained_sweep_says_that_its_first_trial_was_healthy_and_starts_no_others():
    trials = (a_trial("t1", TrialState.SUCCEEDED, 0.5),)
    ended = after(DRAINED, experiment=replace(COMPLETE, end=End.DRAINED), trials=trials)
    assert (ended.phase, ended.first_only) == (Phase.STOPPING, True)
    assert ended.steps["first"] == "✓ First trial healthy"


def test_hold_names_who_cancelled_this_first_trial_and_not_who_was_denied_or_cancelled_an_earlier_one():
    killed = AuditEntry(at=NOW, user="UADA", action=Action.KILL, name="ada", about="t1")
    denied = replace(killed, name="bob", refused="bob can't")
    earlier = replace(killed, about="t0")
    seen = replace(FAILED_SEEN, trials=(a_trial("otter-t1", TrialState.KILLED),))
    held = follow(replace(GATED, audit_log=(killed, denied)), seen, NOW)
    assert held.reason == "ada cancelled the first trial"
    assert follow(replace(GATED, audit_log=(earlier,)), seen, NOW).reason == "first trial was stopped"


@given(sweeps(), NASTY)
def test_external_text_is_escaped(sweep, text):
    held = sweep.put(GateState(hold=text), phase=Phase.HELD)
    killed = AuditEntry(at=NOW, user="UADA", action=Action.KILL, name=text)
    seen = replace(FAILED_SEEN, trials=(a_trial("t1", TrialState.KILLED),))
    stopped = follow(replace(GATED, audit_log=(killed,)), seen, NOW)
    retried = decide.retry(held, Command(action=Action.RETRY, user="UOWNER", user_name=""), seen, CONFIG, NOW)
    for after_ in (stopped, retried):
        escaped(after_.outbox[-1].text)
    escaped("\n".join(decide.problem(held)))
