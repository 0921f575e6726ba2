"""Commands on a sweep: applied, denied by permission or state, or ignored as repeated."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action, AuditEntry, Command
from bot.core.events import Event
from bot.core.record import MAX_AUDIT_ENTRIES, Phase, Shown
from bot.sweep.answers.command_parser import COMMANDS
from bot.sweep.decisions.commands import RULES, apply_command, named
from bot.sweep.lifecycle import texts
from bot.sweep.model.observation import Observation
from k8s.engine import End, Experiment, ExperimentState, Trial, TrialState
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, STRANGER, a_sweep
from tests.cases import cases

ABC = Trial(name="otter-abc", state=TrialState.LIVE, parameters={}, value=None)
LIVE = (ABC, replace(ABC, name="otter-xyz"))
DONE = Experiment(state=ExperimentState.SUCCEEDED, end=End.ALL_TRIALS)
SEEN = Observation(experiment=DONE, trials=LIVE)
RUNNING = a_sweep(Phase.RUNNING, submitted=True)
FINISHED = a_sweep(Phase.SUCCEEDED, submitted=True, ending=Phase.SUCCEEDED, reason="4 trials done")


def a_command(action, **facts):
    known = {"user": OWNER, "user_name": "ada", "response_url": "https://hooks/2"}
    return Command(action=action, **known | facts)


def applied(sweep, command, seen=SEEN, config=CONFIG, now=NOW):
    return apply_command(sweep, command, seen, config, now)


def denial_of(sweep, command, **known):
    """Return why a command was denied; it changes nothing but the audit log and the messages."""
    after = applied(sweep, command, **known)
    [event] = after.outbox
    entry = after.audit_log[-1]
    assert entry.refused == event.text
    assert (event.kind, event.to_user) == ("not_allowed", command.user)
    assert (event.response_url, event.in_thread) == (command.response_url, command.in_thread)
    assert after == replace(sweep, audit_log=(entry,), outbox=after.outbox, shown=Shown())
    return event.text


def test_cancel_is_noted_with_its_user_and_denied_to_a_second_one():
    after = applied(RUNNING, a_command(Action.CANCEL))
    assert (after.cancelled_by, after.outbox) == (OWNER, ())
    assert after.audit_log == (AuditEntry(at=NOW, user=OWNER, name="ada", action=Action.CANCEL),)
    sweep = a_sweep(Phase.STOPPING, cancelled_by=OWNER)
    assert denial_of(sweep, a_command(Action.CANCEL, user=ADMIN)) == (
        "<@UOWNER> already cancelled `lr-brave-otter`."
    )
    assert denial_of(sweep, a_command(Action.DRAIN)) == "<@UOWNER> already cancelled `lr-brave-otter`."
    sweep = replace(RUNNING, shown=Shown(fingerprint="s"))
    assert "can cancel" in denial_of(sweep, a_command(Action.CANCEL, user=STRANGER))
    assert "can cancel" in denial_of(sweep, a_command(Action.CANCEL, user=STRANGER, in_thread=True))
    assert denial_of(RUNNING, a_command(Action.RELEASE, user=ADMIN)) == (
        "`lr-brave-otter` can't do that: this Sweepbot has no command release."
    )
    for action in (Action.CANCEL, Action.DRAIN, Action.KILL):
        assert denial_of(FINISHED, a_command(action, trial="xyz")) == "`lr-brave-otter` has already ended."


@pytest.mark.parametrize("action", [Action.STATUS, Action.LOGS, Action.RERUN])
def test_question_leaves_the_sweep_unchanged(action):
    assert applied(RUNNING, a_command(action, user=STRANGER)) == RUNNING


@pytest.mark.parametrize(
    ("phase", "seconds", "repeated"),
    [
        (Phase.STOPPING, 3600, True),
        (Phase.CANCELLED, 59, True),
        (Phase.CANCELLED, 60, False),
        (Phase.CANCELLED, 61, False),
    ],
)
def test_cancel_of_the_same_user_is_repeated_until_a_minute_after_the_end(phase, seconds, repeated):
    sweep = a_sweep(phase, cancelled_by=OWNER)
    later = NOW + timedelta(seconds=seconds)
    after = applied(sweep, a_command(Action.CANCEL), now=later)
    assert (after == sweep) is repeated
    assert [e.text for e in after.outbox] == ([] if repeated else ["`lr-brave-otter` has already ended."])


def test_drain_is_reported_once_also_after_a_kill():
    after = applied(RUNNING, a_command(Action.DRAIN))
    text = "*ada* is draining this sweep: no new trials start; running trials finish."
    event = Event(kind="draining", text=f":hourglass_flowing_sand: {text}")
    assert (after.draining, after.outbox) == ("drained", (event,))
    again = denial_of(replace(RUNNING, draining="drained"), a_command(Action.DRAIN))
    assert again == "`lr-brave-otter` is already draining."
    held = denial_of(a_sweep(Phase.HELD, submitted=True), a_command(Action.DRAIN))
    assert held == "`lr-brave-otter` is on hold."
    sweep = replace(RUNNING, to_kill={"otter-xyz": OWNER})
    assert applied(sweep, a_command(Action.DRAIN, trial="xyz")).draining == "drained"


@cases(
    ("phase", "submitted", "allowed"),
    [
        (Phase.PENDING, True, True),
        (Phase.RUNNING, True, True),
        (Phase.PENDING, False, False),
        (Phase.BUILDING, True, False),
        (Phase.STOPPING, True, False),
    ],
)
@cases("action", [Action.DRAIN, Action.KILL])
def test_command_about_trials_needs_a_submitted_sweep(action, phase, submitted, allowed):
    sweep, command = a_sweep(phase, submitted=submitted), a_command(action, trial="xyz")
    if allowed:
        assert [e.kind for e in applied(sweep, command).outbox] in ([], ["draining"])
    else:
        denied = {
            Action.DRAIN: "`lr-brave-otter` has no trials yet.",
            Action.KILL: "`xyz` isn't an active trial of `lr-brave-otter`. Active: `otter-abc`, `otter-xyz`.",
        }
        assert denial_of(sweep, command) == denied[action]


def test_kill_names_one_trial_by_its_end():
    sweep = replace(RUNNING, to_kill={"otter-abc": ADMIN})
    after = applied(sweep, a_command(Action.KILL, trial="xyz"))
    assert after.to_kill == {"otter-abc": ADMIN, "otter-xyz": OWNER}
    assert after.audit_log[-1].about == "xyz"
    done = (*LIVE, replace(ABC, name="otter-old", state=TrialState.SUCCEEDED))
    denied = denial_of(RUNNING, a_command(Action.KILL, trial="old"), seen=Observation(trials=done))
    assert denied.endswith("Active: `otter-abc`, `otter-xyz`.")
    same = tuple(replace(trial, name=f"{trial.name}-end") for trial in LIVE)
    denied = denial_of(RUNNING, a_command(Action.KILL, trial="end"), seen=Observation(trials=same))
    assert denied == "`end` matches `otter-abc-end` and `otter-xyz-end`. *Fix:* Give the full name."
    assert [trial.name for trial in named(LIVE, "xyz")] == ["otter-xyz"]
    assert named(LIVE, "") == named(LIVE, "otter") == []
    assert named(LIVE, "z") == named(LIVE, "yz") == []  # `cancel 5` is about a number, not about an end
    sweep = applied(replace(RUNNING, first_only=True), a_command(Action.KILL, trial="xyz"))
    [event] = sweep.outbox
    assert event.text.startswith(":no_entry_sign: *ada* cancelled the first trial, `otter-xyz`. ")
    assert applied(RUNNING, a_command(Action.KILL, trial="xyz")).outbox == ()


@pytest.mark.parametrize("trial", ["", "nope"])
def test_kill_of_no_active_trial_lists_the_active_ones(trial):
    assert "Active: `otter-abc`, `otter-xyz`. " in denial_of(RUNNING, a_command(Action.KILL, trial=trial))
    none = denial_of(RUNNING, a_command(Action.KILL, trial=trial), seen=Observation())
    assert none.endswith("Active: none. To cancel the whole sweep: `/sweep cancel lr-brave-otter`.")
    in_thread = denial_of(RUNNING, a_command(Action.KILL, trial="nope", in_thread=True))
    assert in_thread.endswith("To cancel the whole sweep: `@sweepbot cancel`.")


@pytest.mark.parametrize("trial", ["", "xyz"])
def test_second_click_of_the_same_user_is_silent_for_a_minute(trial):
    """Of any command that the first click has made impossible; another user's is denied."""
    command = a_command(Action.KILL if trial else Action.DRAIN, trial=trial)
    once = applied(RUNNING, command)
    assert applied(once, command, now=NOW + timedelta(seconds=59)) == once
    later = applied(once, command, now=NOW + timedelta(seconds=60)).outbox[-1].text
    assert "already" in later
    other = applied(once, replace(command, user=ADMIN)).outbox[-1]
    assert (other.to_user, other.text) == (ADMIN, later)


def test_audit_log_keeps_the_newest_fifty():
    sweep = RUNNING
    for number in range(51):
        sweep = sweep.with_entry(AuditEntry(at=NOW, user=str(number), action=Action.DRAIN))
    assert MAX_AUDIT_ENTRIES == 50
    assert [entry.user for entry in sweep.audit_log] == [str(number) for number in range(1, 51)]


def test_idle_trial_is_stopped_by_sweepbot_alone_and_a_late_stop_is_silent():
    stop = Command(action=Action.STOP_IDLE, user="", user_name="Sweepbot", trial="otter-abc")
    after = applied(RUNNING, stop)
    assert after.to_kill == {"otter-abc": texts.IDLE}
    assert after.audit_log[-1].name == "Sweepbot"
    event = texts.trial_killed(after, "otter-abc", texts.IDLE)
    assert event.text == (
        ":no_entry_sign: Sweepbot stopped trial `otter-abc`: its GPUs were idle, and the warning "
        "wasn't snoozed. Its GPUs are free."
    )
    without = replace(after, plan=replace(after.plan, gpus=0))
    assert texts.trial_killed(without, "otter-abc", ADMIN).text.endswith("Its CPUs are free.")
    assert (
        denial_of(replace(after, audit_log=()), a_command(Action.KILL, trial="otter-abc"))
        == "Sweepbot already cancelled `otter-abc`."
    )
    for sweep in (after, FINISHED, replace(RUNNING, cancelled_by=OWNER)):
        assert applied(sweep, stop) == sweep
    assert applied(RUNNING, replace(stop, trial="otter-gone")) == RUNNING
    assert all(each.does is not Action.STOP_IDLE for each in COMMANDS)
    assert not RULES[Action.STOP_IDLE].button
