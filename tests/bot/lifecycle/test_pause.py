"""Pausing and resuming: who can, when it is denied, and which changes it requires."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.answers.command_parser import ParsedCommand, choose, parse_command
from bot.config.limits import Launch
from bot.config.permissions import OtherPeaks, launch_denial
from bot.config.teams import Team
from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.core.events import EventKind
from bot.core.record import Phase
from bot.core.sweep_summary import SweepSummary
from bot.lifecycle.commands import apply_command
from bot.lifecycle.deadline import out_of_time, time_left
from bot.lifecycle.observation import Observation
from bot.lifecycle.phases import advance
from bot.lifecycle.required_changes import required_changes
from k8s.katib.patches import PAUSED
from k8s.katib.status import ExperimentState
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, STRANGER, a_sweep
from tests.bot.lifecycle.observations import DONE, OPEN, RAW, a_job, a_pod, a_trial

LATER = NOW + timedelta(hours=5)
RUNNING = a_sweep(Phase.RUNNING, submitted=True)
PAUSING = replace(RUNNING, paused_at=NOW, paused_by=OWNER)
STOPPED = replace(PAUSING, phase=Phase.PAUSED, paused_in=Phase.RUNNING)
CLOSED = replace(OPEN, state=ExperimentState.SUCCEEDED, reason=PAUSED, raw=RAW)
ACTIVE = {"trials": (a_trial("t1"),), "jobs": (a_job("t1"),), "pods": (a_pod("t1"),)}


def applied(sweep, action, user=OWNER, config=CONFIG, **seen):
    seen = Observation(**{"experiment": OPEN} | seen)
    return apply_command(sweep, Command(action=action, user=user, user_name="x"), seen, config, NOW)


def denied(sweep, action, **known):
    [event] = applied(sweep, action, **known).outbox
    assert event.kind is EventKind.NOT_ALLOWED
    return event.text


@pytest.mark.parametrize("action", [Action.PAUSE, Action.PAUSE_NOW])
def test_pause_notes_user_time_and_mode(action):
    after = applied(RUNNING, action)
    assert (after.paused_by, after.paused_at) == (OWNER, NOW)
    assert after.pause_now is (action is Action.PAUSE_NOW)
    [event] = after.outbox
    assert (event.kind, event.text) == (EventKind.PAUSING, "now" if action is Action.PAUSE_NOW else "")
    assert applied(after, action) == after, "a second click"


@pytest.mark.parametrize(
    ("sweep", "action", "seen", "text"),
    [
        (a_sweep(Phase.BUILDING), Action.PAUSE, {}, "has no trials to pause."),
        (a_sweep(Phase.HELD, submitted=True, gated=True), Action.PAUSE, {}, "has no trials to pause."),
        (a_sweep(Phase.BUILDING, start_wait="nodes"), Action.PAUSE, {}, "is waiting for nodes, so it has no"),
        (replace(RUNNING, gated=True), Action.PAUSE, {}, "is waiting for its first trial."),
        (replace(RUNNING, out_of_time=True), Action.PAUSE_NOW, {}, "is draining: no new trials start."),
        (RUNNING, Action.PAUSE, {"experiment": DONE}, "is ending: no new trials start."),
        (RUNNING, Action.RESUME, {}, "isn't paused."),
        (STOPPED, Action.PAUSE_NOW, {"experiment": CLOSED}, "is already paused."),
        (replace(PAUSING, pause_now=True), Action.PAUSE, {}, "is already pausing."),
        (PAUSING, Action.DRAIN, {}, "is paused. Resume it first, or cancel it."),
        (STOPPED, Action.DRAIN, {"experiment": CLOSED}, "is paused. Resume it first, or cancel it."),
        (a_sweep(Phase.SUCCEEDED), Action.RESUME, {}, "has already ended."),
    ],
)
def test_pause_is_denied_where_it_has_no_effect(sweep, action, seen, text):
    assert text in denied(sweep, action, **seen)


def test_second_pause_changes_only_from_after_trials_to_now():
    after = applied(PAUSING, Action.PAUSE_NOW, user=ADMIN)
    assert (after.paused_at, after.paused_by, after.pause_now) == (NOW, ADMIN, True)
    now = replace(PAUSING, pause_now=True)
    for sweep, action in ((PAUSING, Action.PAUSE), (now, Action.PAUSE), (now, Action.PAUSE_NOW)):
        assert "is already pausing." in denied(sweep, action, user=ADMIN)


def test_pause_is_for_the_owner_teammates_by_setting_and_admins():
    team = (Team(name="vision", members=(OWNER, STRANGER)),)
    together = replace(CONFIG, teams=team, teammates_can_act=True)
    assert "can pause `lr-brave-otter`" in denied(RUNNING, Action.PAUSE_NOW, user=STRANGER)
    assert "can resume `lr-brave-otter`" in denied(STOPPED, Action.RESUME, user=STRANGER, experiment=CLOSED)
    assert applied(RUNNING, Action.PAUSE, user=STRANGER, config=together).paused_by == STRANGER
    assert applied(RUNNING, Action.PAUSE, user=ADMIN).paused_by == ADMIN


def test_resume_is_denied_if_the_owners_other_sweeps_use_the_gpus():
    limited = replace(CONFIG, launch=Launch(gpus_per_person=3))
    seen = {"experiment": CLOSED, "others": OtherPeaks(person=2)}
    assert "your other sweeps can use up to 2" in denied(STOPPED, Action.RESUME, config=limited, **seen)
    assert (
        applied(STOPPED, Action.RESUME, config=limited, **seen | {"others": OtherPeaks(person=1)}).phase
        is Phase.RUNNING
    )
    assert applied(STOPPED, Action.RESUME, user=ADMIN, config=limited, **seen).phase is Phase.RUNNING
    still = applied(PAUSING, Action.RESUME, config=limited, **seen)
    assert (still.resuming, still.paused_at) == (True, None), "it still holds its GPUs"


def test_resume_is_denied_to_owners_who_can_no_longer_start_sweeps():
    config = replace(CONFIG, launch=Launch(people=(STRANGER,)))
    refused = denied(STOPPED, Action.RESUME, config=config, experiment=CLOSED)
    assert refused == launch_denial(OWNER, "C1", config) != ""
    assert (
        applied(STOPPED, Action.RESUME, user=ADMIN, config=config, experiment=CLOSED).phase is Phase.RUNNING
    )


def test_resuming_sweep_stays_active_until_katib_continues():
    resuming = replace(RUNNING, resuming=True)
    after = advance(resuming, Observation(experiment=CLOSED), CONFIG, LATER)
    assert (after.phase, after.paused_at, after.resuming, after.outbox) == (Phase.RUNNING, None, True, ())


def test_pause_closes_the_experiment_before_it_stops_a_trial():
    now = replace(PAUSING, pause_now=True)
    [close] = required_changes(now, Observation(experiment=OPEN, **ACTIVE), NOW).patch
    assert (close.ref.kind, close.subresource) == ("Experiment", "status")
    assert close.body["status"]["conditions"][-1]["reason"] == PAUSED
    [kill] = required_changes(now, Observation(experiment=CLOSED, **ACTIVE), NOW).patch
    assert (kill.ref.name, kill.body["status"]["conditions"][0]["type"]) == ("t1", "Killed")
    assert required_changes(PAUSING, Observation(experiment=CLOSED, **ACTIVE), NOW).patch == ()
    assert required_changes(STOPPED, Observation(experiment=CLOSED), NOW).patch == ()


def test_resume_removes_the_condition_and_changes_no_count():
    raw = close_of(RUNNING)
    resuming = replace(RUNNING, resuming=True)
    closed = replace(CLOSED, raw=raw)
    [patch] = required_changes(resuming, Observation(experiment=closed), LATER).patch
    assert (patch.subresource, patch.body.keys()) == ("status", {"metadata", "status"})
    conditions = {each["type"]: each["status"] for each in patch.body["status"]["conditions"]}
    assert "Succeeded" not in conditions
    assert conditions["Running"] == "True"


def close_of(sweep):
    """Return the experiment after the patch that pauses it."""
    running = {"type": "Running", "status": "True", "reason": "r", "message": "m"}
    raw = {**RAW, "status": {"conditions": [running]}}
    seen = Observation(experiment=replace(OPEN, raw=raw))
    [close] = required_changes(replace(sweep, paused_at=NOW), seen, NOW).patch
    return {**raw, "status": close.body["status"]}


def test_paused_is_reported_only_without_pods_jobs_and_trials():
    waiting = advance(PAUSING, Observation(experiment=CLOSED, **ACTIVE), CONFIG, NOW)
    assert (waiting.phase, waiting.outbox) == (Phase.RUNNING, ())
    pod = Observation(experiment=CLOSED, pods=(a_pod("t1"),))
    assert advance(PAUSING, pod, CONFIG, NOW).phase is Phase.RUNNING
    done = advance(PAUSING, Observation(experiment=CLOSED), CONFIG, NOW)
    assert (done.phase, [event.kind for event in done.outbox]) == (Phase.PAUSED, [EventKind.PAUSED])


def test_pods_that_never_end_are_reported_while_pausing_now():
    now = replace(PAUSING, pause_now=True)
    stuck = Observation(experiment=CLOSED, pods=(a_pod("t1"),))
    late = advance(now, stuck, CONFIG, LATER)
    assert [event.kind for event in late.outbox] == [EventKind.STUCK]
    assert advance(late, stuck, CONFIG, LATER).outbox == late.outbox
    assert advance(PAUSING, stuck, CONFIG, LATER).outbox == (), "its trials may take days"


def test_experiment_that_ends_by_itself_ends_a_pausing_sweep():
    assert advance(PAUSING, Observation(experiment=DONE), CONFIG, NOW).ending is Phase.SUCCEEDED
    assert advance(PAUSING, Observation(), CONFIG, NOW).ending is Phase.FAILED


def test_experiment_resumed_by_a_user_runs_again():
    after = advance(STOPPED, Observation(experiment=OPEN, **ACTIVE), CONFIG, NOW)
    assert (after.phase, after.paused_at, after.resuming) == (Phase.RUNNING, None, False)
    assert [event.kind for event in after.outbox] == [EventKind.RESUMED]


def test_deadline_stands_still_during_a_pause():
    limited = replace(PAUSING, deadline=NOW + timedelta(hours=1))
    assert out_of_time(limited, LATER) == limited
    assert time_left(limited, LATER) is None
    stopped = replace(limited, phase=Phase.PAUSED)
    command = Command(action=Action.RESUME, user=OWNER, user_name="ada")
    after = apply_command(stopped, command, Observation(experiment=CLOSED), CONFIG, LATER)
    assert after.deadline == LATER + timedelta(hours=1)


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


@pytest.mark.parametrize("text", ["pause otter soon", "pause now otter", "resume otter now"])
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
