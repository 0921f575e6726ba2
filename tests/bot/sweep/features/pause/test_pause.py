"""Pausing and resuming: who can, when it is denied, which changes it requires, and how it is shown."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.budget import Budget
from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.core.events import Event
from bot.core.record import Phase
from bot.core.sweep_summary import SweepSummary
from bot.platform.config.limits import Launch
from bot.platform.config.permissions import OtherPeaks, launch_denial
from bot.platform.config.teams import Team
from bot.sweep.answers.command_parser import ParsedCommand, choose, parse_command
from bot.sweep.decisions.commands import apply_command
from bot.sweep.decisions.parent_message import Links, buttons, parent
from bot.sweep.decisions.required_changes import needs_fresh_read, required_changes
from bot.sweep.features.pause.decide import PauseState, restarted
from bot.sweep.lifecycle.trials import out_of_time, time_left
from bot.sweep.model.observation import Observation
from k8s.engine import End, ExperimentState
from k8s.katib.status import read_experiment
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, PLAN, STRANGER, a_sweep
from tests.bot.sweep.model.observations import (
    DONE,
    OPEN,
    RAW,
    a_job,
    a_pod,
    a_trial,
    after,
    an_experiment,
    kinds,
)
from tests.cases import cases

LATER = NOW + timedelta(hours=5)
RUNNING = a_sweep(Phase.RUNNING, submitted=True)
PAUSING = RUNNING.put(PauseState(at=NOW, by=OWNER), holds=("pause",))
PAUSING_NOW = PAUSING.change(PauseState, now=True)
STOPPED = replace(PAUSING.change(PauseState, phase=Phase.RUNNING), phase=Phase.PAUSED)
RESUMING = RUNNING.put(PauseState(resuming=True), holds=("resume",))
CLOSED = replace(OPEN, state=ExperimentState.SUCCEEDED, end=End.PAUSED)
ACTIVE = {"trials": (a_trial("t1"),), "jobs": (a_job("t1"),), "pods": (a_pod("t1"),)}


def applied(sweep, action, user=OWNER, config=CONFIG, now=NOW, **seen):
    seen = Observation(**{"experiment": OPEN} | seen)
    return apply_command(sweep, Command(action=action, user=user, user_name="x"), seen, config, now)


def denied(sweep, action, **known):
    [event] = applied(sweep, action, **known).outbox
    assert event.kind == "not_allowed"
    return event.text


def changes(sweep, **seen):
    return required_changes(sweep, Observation(**seen), NOW)


@pytest.mark.parametrize(
    ("action", "paused", "what"),
    [(Action.PAUSE, PAUSING, "finish"), (Action.PAUSE_NOW, PAUSING_NOW, "are being stopped")],
)
def test_pause_notes_user_time_and_mode(action, paused, what):
    text = (
        f":hourglass_flowing_sand: *ada* is pausing this sweep: no new trials start; running trials {what}."
    )
    once = applied(RUNNING, action)
    [entry] = once.audit_log
    assert once == replace(paused, audit_log=(entry,), outbox=(Event(kind="pausing", text=text),))
    assert applied(once, action) == once, "a second click"


@cases(
    ("sweep", "action", "seen", "text"),
    [
        (a_sweep(Phase.BUILDING), Action.PAUSE, {}, "has no trials to pause."),
        (a_sweep(Phase.PENDING), Action.PAUSE, {"experiment": OPEN}, "has no trials to pause."),
        (a_sweep(Phase.HELD, submitted=True, first_only=True), Action.PAUSE, {}, "has no trials to pause."),
        (a_sweep(Phase.PENDING, holds=("nodes",)), Action.PAUSE, {}, "is waiting for nodes, so it has no"),
        (replace(RUNNING, first_only=True), Action.PAUSE, {}, "is waiting for its first trial."),
        (replace(RUNNING, draining="drained"), Action.PAUSE_NOW, {}, "is draining: no new trials start."),
        (RUNNING, Action.PAUSE, {"experiment": DONE}, "is ending: no new trials start."),
        (RUNNING, Action.RESUME, {}, "isn't paused."),
        (STOPPED, Action.PAUSE_NOW, {"experiment": CLOSED}, "is already paused."),
        (PAUSING, Action.PAUSE, {}, "is already pausing."),
        (PAUSING_NOW, Action.PAUSE, {}, "is already pausing."),
        (PAUSING_NOW, Action.PAUSE_NOW, {}, "is already pausing."),
        (PAUSING, Action.DRAIN, {}, "is paused. Resume it first, or cancel it."),
        (STOPPED, Action.DRAIN, {"experiment": CLOSED}, "is paused. Resume it first, or cancel it."),
        (a_sweep(Phase.SUCCEEDED), Action.RESUME, {}, "has already ended."),
    ],
)
def test_pause_is_denied_where_it_has_no_effect(sweep, action, seen, text):
    assert text in denied(sweep, action, user=ADMIN, **seen)


@pytest.mark.parametrize(
    "seen", [{"reopens": True}, {"starting_again": frozenset({"t1"})}], ids=["reopens", "starts again"]
)
def test_pause_of_an_experiment_that_only_seems_to_end_is_allowed(seen):
    assert applied(RUNNING, Action.PAUSE, experiment=DONE, **seen).of(PauseState).at == NOW


@pytest.mark.parametrize(
    ("budget", "auto"),
    [
        pytest.param(Budget(gpu_hours=9), False, marks=pytest.mark.features("budget")),
        pytest.param(None, True, marks=pytest.mark.features("auto_parallel")),
    ],
)
def test_pause_of_a_sweep_that_has_run_all_trials_of_a_lowered_total_keeps_it_from_running_more(budget, auto):
    space = replace(PLAN.space, max_trials=DONE.max_trials + 1, auto=auto)
    sweep = replace(RUNNING, plan=replace(PLAN, budget=budget, space=space))
    paused = applied(sweep, Action.PAUSE, experiment=DONE)
    assert paused.of(PauseState).at == NOW
    assert changes(sweep, experiment=DONE).patch != ()
    assert changes(paused, experiment=DONE).patch == ()


def test_pause_is_for_the_owner_teammates_and_admins_and_changes_once_to_now():
    waiting = RESUMING.hold("nodes")
    again = applied(waiting, Action.PAUSE, experiment=CLOSED)
    assert again.of(PauseState) == PauseState(at=NOW, by=OWNER)
    again = applied(PAUSING, Action.PAUSE_NOW, user=ADMIN, now=LATER)
    assert again.of(PauseState) == PauseState(at=NOW, by=ADMIN, now=True)
    team = (Team(name="vision", members=(OWNER, STRANGER)),)
    together = replace(CONFIG, teams=team, teammates_can_act=True)
    assert "can pause `lr-brave-otter`" in denied(RUNNING, Action.PAUSE_NOW, user=STRANGER)
    assert "can resume `lr-brave-otter`" in denied(STOPPED, Action.RESUME, user=STRANGER, experiment=CLOSED)
    assert applied(RUNNING, Action.PAUSE, user=STRANGER, config=together).of(PauseState).by == STRANGER
    assert applied(RUNNING, Action.PAUSE, user=ADMIN).of(PauseState).by == ADMIN


def test_resume_is_denied_if_limits_or_permissions_do_not_allow_it():
    limited = {"config": replace(CONFIG, launch=Launch(gpus_per_person=3)), "experiment": CLOSED}
    many, few = OtherPeaks(person=2), OtherPeaks(person=1)
    assert "your other sweeps can use up to 2" in denied(STOPPED, Action.RESUME, others=many, **limited)
    assert applied(STOPPED, Action.RESUME, others=few, **limited).phase is Phase.RUNNING
    assert applied(STOPPED, Action.RESUME, user=ADMIN, others=many, **limited).phase is Phase.RUNNING
    still = applied(PAUSING, Action.RESUME, others=many, **limited)
    assert still.of(PauseState) == PauseState(resuming=True), "it still holds its GPUs"
    closed = {"config": replace(CONFIG, launch=Launch(people=(STRANGER,))), "experiment": CLOSED}
    refused = denied(STOPPED, Action.RESUME, **closed)
    assert refused == launch_denial(OWNER, "C1", closed["config"]) != ""
    assert applied(STOPPED, Action.RESUME, user=ADMIN, **closed).phase is Phase.RUNNING


def test_resumed_sweep_is_held_until_katib_continues():
    resumed = applied(STOPPED, Action.RESUME, experiment=CLOSED, now=LATER)
    [event] = resumed.outbox
    assert event == Event(kind="resumed", text=":runner: *ada* resumed this sweep: trials start again.")
    assert resumed == replace(RESUMING, since=LATER, audit_log=resumed.audit_log, outbox=(event,))
    assert after(resumed, experiment=CLOSED) == resumed
    runs = after(resumed, experiment=OPEN, **ACTIVE)
    assert (runs.phase, runs.of(PauseState), runs.holds) == (Phase.RUNNING, PauseState(), ())


def test_pause_closes_the_experiment_before_it_stops_a_trial():
    [close] = changes(PAUSING_NOW, experiment=OPEN, **ACTIVE).patch
    assert (close.ref.kind, close.subresource) == ("Experiment", "status")
    assert close.body["status"]["conditions"][-1]["reason"] == "SweepbotPaused"
    [kill] = changes(PAUSING_NOW, experiment=CLOSED, **ACTIVE).patch
    assert (kill.ref.name, kill.body["status"]["conditions"][0]["type"]) == ("t1", "Killed")
    cancelled = replace(PAUSING_NOW, to_kill={"t1": OWNER})
    assert changes(cancelled, experiment=CLOSED, **ACTIVE).patch == (kill,)
    assert changes(PAUSING, experiment=CLOSED, **ACTIVE).patch == ()
    assert changes(STOPPED, experiment=CLOSED).patch == ()


def test_resume_removes_the_condition_and_changes_no_count():
    running = {"type": "Running", "status": "True", "reason": "r", "message": "m"}
    raw = {**RAW, "status": {"conditions": [running]}}
    [close] = changes(PAUSING, experiment=an_experiment(raw)).patch
    closed = read_experiment({**raw, "status": close.body["status"]})
    [patch] = changes(RESUMING, experiment=closed).patch
    assert (patch.subresource, patch.body.keys()) == ("status", {"metadata", "status"})
    conditions = {each["type"]: each["status"] for each in patch.body["status"]["conditions"]}
    assert "Succeeded" not in conditions
    assert conditions["Running"] == "True"


def test_paused_is_reported_only_without_pods_jobs_and_trials():
    assert after(PAUSING, experiment=CLOSED, **ACTIVE).phase is Phase.RUNNING
    assert after(PAUSING, experiment=CLOSED, pods=(a_pod("t1"),)).phase is Phase.RUNNING
    done = after(PAUSING, experiment=CLOSED, now=LATER)
    text = (
        ":zzz: Paused. All pods are gone and the GPUs are free. To continue: `/sweep resume lr-brave-otter`."
    )
    assert done == replace(STOPPED, since=LATER, outbox=(Event(kind="paused", text=text),))
    assert after(done, experiment=CLOSED) == done
    paused = after(RUNNING, experiment=CLOSED, now=LATER)
    assert paused.phase is Phase.PAUSED
    assert (paused.of(PauseState), paused.holds) == (PauseState(at=LATER, phase=Phase.RUNNING), ("pause",))
    stuck = {"experiment": CLOSED, "pods": (a_pod("t1"),), "now": LATER}
    late = after(PAUSING_NOW, **stuck)
    assert kinds(late) == ["stuck"]
    assert late.outbox[0].text.endswith("The sweep is paused once they're gone.")
    assert after(late, **stuck) == late
    assert after(PAUSING, **stuck).outbox == (), "its trials may take days"


def test_experiment_that_ends_or_is_deleted_ends_a_paused_sweep():
    assert after(PAUSING, experiment=DONE).ending is Phase.SUCCEEDED
    assert after(PAUSING).ending is Phase.FAILED
    finished = replace(PAUSING, phase=Phase.SUCCEEDED)
    extended = restarted(finished, replace(finished, phase=Phase.RUNNING))
    assert extended == RUNNING, "an extension of the sweep doesn't pause"
    failed = after(STOPPED)
    assert (failed.phase, failed.ending) == (Phase.STOPPING, Phase.FAILED)
    assert failed.reason == "The Katib experiment was deleted, or isn't in this cluster"
    again = after(STOPPED, experiment=OPEN, **ACTIVE)
    assert (again.phase, again.of(PauseState), again.holds) == (Phase.RUNNING, PauseState(), ())
    assert again.outbox == (
        Event(kind="resumed", text=":runner: This sweep was resumed: trials start again."),
    )


@pytest.mark.features("nodes")
def test_sweep_on_nodes_resumed_before_redis_lost_the_record_waits_for_them():
    again = after(replace(STOPPED, plan=replace(PLAN, nodes=2)), experiment=OPEN, **ACTIVE)
    assert (again.phase, again.holds) == (Phase.RUNNING, ("nodes",))


def test_pause_and_resume_are_decided_from_a_direct_read():
    stored = Observation(experiment=OPEN)
    assert needs_fresh_read(RUNNING, PAUSING, stored, NOW)
    assert needs_fresh_read(RUNNING, RESUMING, stored, NOW)
    assert not needs_fresh_read(RESUMING, RESUMING, stored, NOW)


def test_deadline_stands_still_during_a_pause():
    limited = replace(PAUSING, deadline=NOW + timedelta(hours=1))
    assert out_of_time(limited, Observation(), LATER) == limited
    assert time_left(limited, LATER) is None
    stopped = replace(limited, phase=Phase.PAUSED)
    resumed = applied(stopped, Action.RESUME, experiment=CLOSED, now=LATER)
    assert resumed.deadline == LATER + timedelta(hours=1)


@cases(
    ("sweep", "shown"),
    [
        (RUNNING, ["Pause", "Pause now"]),
        (PAUSING, ["Resume", "Pause now"]),
        (PAUSING_NOW, ["Resume"]),
        (STOPPED, ["Resume"]),
        (replace(RUNNING, draining="drained"), []),
        (replace(RUNNING, first_only=True), []),
        (replace(RUNNING, submitted=False), []),
        (replace(PAUSING, phase=Phase.STOPPING), []),
    ],
)
def test_parent_offers_what_pausing_allows(sweep, shown):
    labels = {each["text"]["text"]: each for each in buttons(sweep)}
    assert [label for label in labels if label in {"Pause", "Pause now", "Resume"}] == shown
    assert "Resume" not in labels or "on up to 2 GPUs" in str(labels["Resume"])


def test_resume_of_a_sweep_without_gpus_names_none():
    sweep = replace(STOPPED, plan=replace(STOPPED.plan, gpus=0))
    [resume] = [each for each in buttons(sweep) if each["text"]["text"] == "Resume"]
    assert resume["confirm"]["text"]["text"] == f"Starts trials of {sweep.id} again."


def test_parent_shows_the_pause_and_who_asked_for_it():
    def text(sweep):
        return parent(sweep, Links()).blocks[0]["text"]["text"]

    assert "\nPausing: no new trials start; running trials finish." in text(PAUSING)
    assert "\nPausing: no new trials start; running trials are being stopped." in text(PAUSING_NOW)
    assert text(STOPPED).startswith(":zzz: *lr-brave-otter* · Paused by *ada*\n")
    assert "Pausing" not in text(STOPPED) + text(RUNNING) + text(replace(PAUSING, phase=Phase.STOPPING))


@pytest.mark.parametrize(
    ("text", "here", "action", "sweep"),
    [
        ("pause", "", Action.PAUSE, ""),
        ("pause now", "", Action.PAUSE_NOW, ""),
        ("pause otter now", "", Action.PAUSE_NOW, "otter"),
        ("pause otter after-trials", "", Action.PAUSE, "otter"),
        ("pause NOW", "lr-brave-otter", Action.PAUSE_NOW, "lr-brave-otter"),
        ("resume", "lr-brave-otter", Action.RESUME, "lr-brave-otter"),
    ],
)
def test_pause_and_resume_are_parsed(text, here, action, sweep):
    assert parse_command(text, here) == ParsedCommand(action=action, sweep=sweep)


@pytest.mark.parametrize("text", ["pause otter soon", "pause otter now now", "resume otter now"])
def test_invalid_pause_options_show_the_usage(text):
    with pytest.raises(UserError, match=r"Usage: `/sweep (pause|resume)"):
        parse_command(text)


def test_pause_without_a_name_needs_a_unique_sweep():
    known = {"user": OWNER, "channel": "C1"}
    sweeps = [
        SweepSummary(id="lr-brave-otter", phase=Phase.PAUSED, **known),
        SweepSummary(id="lr-calm-heron", phase=Phase.RUNNING, **known),
    ]
    for text, name in (("resume", "lr-brave-otter"), ("pause", "lr-calm-heron")):
        assert choose(parse_command(text), OWNER, sweeps, CONFIG).sweep == name
    only = [replace(sweeps[1], id="lr-red-fox"), sweeps[1]]
    with pytest.raises(UserError, match="Several of your sweeps match"):
        choose(parse_command("resume"), OWNER, only, CONFIG)


@pytest.mark.features("gate")
def test_sweep_that_pauses_before_its_gate_is_open_is_not_extended_meanwhile():
    """Katib rejects more trials of a paused experiment, which must not end the sweep and its trials."""
    limited = {**OPEN.raw, "spec": {"maxTrialCount": 1, "parallelTrialCount": 1, "maxFailedTrialCount": 1}}
    gated, ready = a_sweep(Phase.RUNNING, submitted=True, first_only=True), an_experiment(limited)
    both = tuple(Command(action=each, user=OWNER, user_name="ada") for each in (Action.OPEN, Action.PAUSE))
    trials = {"trials": (a_trial("t1"),), "jobs": (a_job("t1"),), "pods": (a_pod("t1", running_since=NOW),)}
    sweep = after(gated, experiment=ready, commands=both, **trials)
    pausing = Observation(experiment=ready, **trials)
    [patch] = required_changes(sweep, pausing, LATER).patch
    assert patch.subresource == "status"
    halted = Observation(experiment=an_experiment(limited, CLOSED), **trials)
    assert required_changes(sweep, halted, LATER).patch == ()
