"""Commands on a sweep: applied, denied by permission or state, or ignored as repeated."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.config.limits import Limits
from bot.core.commands import Action, AuditEntry, Command
from bot.core.events import Event, EventKind
from bot.core.record import Phase
from bot.core.space import Parameter
from bot.lifecycle.commands import MAX_AUDIT_ENTRIES, apply_command, named, with_entry
from bot.lifecycle.observation import Observation
from k8s.katib.status import Experiment, ExperimentState, Trial, TrialState
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, PLAN, STRANGER, a_sweep

ABC = Trial(name="otter-abc", state=TrialState.LIVE, parameters={}, value=None, raw={})
LIVE = (ABC, replace(ABC, name="otter-xyz"))
DONE = Experiment(state=ExperimentState.SUCCEEDED, raw={}, reason="ExperimentMaxTrialsReached")
SEEN = Observation(experiment=DONE, trials=LIVE)
RUNNING = a_sweep(Phase.RUNNING, submitted=True)
TARGET_REACHED = replace(DONE, reason="ExperimentGoalReached")
EXTENDABLE = replace(PLAN, space=replace(PLAN.space, extendable=True))
FINISHED = a_sweep(
    Phase.SUCCEEDED, submitted=True, plan=EXTENDABLE, ending=Phase.SUCCEEDED, reason="4 trials done"
)


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
    assert (event.kind, event.to_user) == (EventKind.NOT_ALLOWED, command.user)
    assert (event.response_url, event.in_thread) == (command.response_url, command.in_thread)
    assert after == replace(sweep, audit_log=(entry,), outbox=after.outbox, shown="", health_shown="")
    return event.text


def test_cancel_is_noted_with_its_user():
    after = applied(RUNNING, a_command(Action.CANCEL))
    assert (after.cancelled_by, after.outbox) == (OWNER, ())
    assert after.audit_log == (AuditEntry(at=NOW, user=OWNER, name="ada", action=Action.CANCEL),)


@pytest.mark.parametrize("action", [Action.STATUS, Action.LOGS, Action.RERUN])
def test_question_leaves_the_sweep_unchanged(action):
    assert applied(RUNNING, a_command(action, user=STRANGER)) == RUNNING


def test_command_about_gpus_leaves_only_an_audit_entry():
    entry = AuditEntry(at=NOW, user=OWNER, name="ada", action=Action.KEEP)
    assert applied(RUNNING, a_command(Action.KEEP)) == replace(RUNNING, audit_log=(entry,))


def test_command_of_a_stranger_is_denied_with_both_messages_updated():
    sweep = replace(RUNNING, shown="s", health_shown="h")
    assert "can cancel" in denial_of(sweep, a_command(Action.CANCEL, user=STRANGER))
    assert "can cancel" in denial_of(sweep, a_command(Action.CANCEL, user=STRANGER, in_thread=True))


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


def test_cancel_by_another_user_is_denied_with_the_first_ones_name():
    sweep = a_sweep(Phase.STOPPING, cancelled_by=OWNER)
    assert denial_of(sweep, a_command(Action.CANCEL, user=ADMIN)) == (
        "<@UOWNER> already cancelled `lr-brave-otter`."
    )
    assert denial_of(sweep, a_command(Action.DRAIN)) == "<@UOWNER> already cancelled `lr-brave-otter`."


def test_drain_is_reported_once():
    after = applied(RUNNING, a_command(Action.DRAIN))
    assert (after.drained_by, [(e.kind, e.by) for e in after.outbox]) == (
        OWNER,
        [(EventKind.DRAINING, OWNER)],
    )
    again = denial_of(replace(RUNNING, drained_by=OWNER), a_command(Action.DRAIN))
    assert again == "`lr-brave-otter` is already draining."


@pytest.mark.parametrize(
    ("phase", "submitted", "allowed"),
    [
        (Phase.PENDING, True, True),
        (Phase.RUNNING, True, True),
        (Phase.PENDING, False, False),
        (Phase.BUILDING, True, False),
        (Phase.STOPPING, True, False),
    ],
)
@pytest.mark.parametrize("action", [Action.DRAIN, Action.KILL])
def test_command_about_trials_needs_a_submitted_sweep(action, phase, submitted, allowed):
    sweep, command = a_sweep(phase, submitted=submitted), a_command(action, trial="xyz")
    if allowed:
        assert [e.kind for e in applied(sweep, command).outbox] in ([], [EventKind.DRAINING])
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


@pytest.mark.parametrize("trial", ["", "nope"])
def test_kill_of_no_active_trial_lists_the_active_ones(trial):
    assert denial_of(RUNNING, a_command(Action.KILL, trial=trial)).endswith(
        "Active: `otter-abc`, `otter-xyz`."
    )
    none = denial_of(RUNNING, a_command(Action.KILL, trial=trial), seen=Observation())
    assert none.endswith("isn't an active trial of `lr-brave-otter`. Active: none.")


def test_kill_of_an_ambiguous_name_is_denied():
    same = tuple(replace(trial, name=f"{trial.name}-1") for trial in LIVE)
    assert "isn't an active trial" in denial_of(
        RUNNING, a_command(Action.KILL, trial="-1"), seen=Observation(trials=same)
    )


@pytest.mark.parametrize(
    ("user", "trial", "repeated"),
    [(OWNER, "xyz", True), (OWNER, "otter-xyz", True), (ADMIN, "xyz", False), (OWNER, "abc", False)],
)
def test_kill_of_the_same_trial_by_the_same_user_is_repeated(user, trial, repeated):
    sweep = replace(RUNNING, to_kill={"otter-xyz": OWNER})
    assert (applied(sweep, a_command(Action.KILL, user=user, trial=trial)) == sweep) is repeated


def test_drain_after_a_kill_is_no_repetition():
    sweep = replace(RUNNING, to_kill={"otter-xyz": OWNER})
    assert applied(sweep, a_command(Action.DRAIN, trial="xyz")).drained_by == OWNER


def test_ended_sweep_denies_all_but_an_extension():
    for action in (Action.CANCEL, Action.DRAIN, Action.KILL):
        assert denial_of(FINISHED, a_command(action, trial="xyz")) == "`lr-brave-otter` has already ended."


def test_extend_continues_with_the_new_total():
    after = applied(FINISHED, a_command(Action.EXTEND, trials=9))
    assert (after.phase, after.since, after.extending) == (Phase.RUNNING, NOW, True)
    assert (after.ending, after.reason, after.plan.space.max_trials) == (None, "", 9)
    assert after.outbox == (Event(kind=EventKind.EXTENDED, by=OWNER),)
    assert after.audit_log[-1].about == "9 trials"


GRID = replace(EXTENDABLE.space, parameters=(Parameter(name="lr", values=("1", "2", "3", "4", "5", "6")),))
FEW = replace(CONFIG, limits=Limits(trials=5))
ENDED = "`lr-brave-otter` is still running. Only a finished sweep can be extended."
ENOUGH = "`lr-brave-otter` already has 4 trials. Set `trials=` to a higher total."
ALL_USED = "`lr-brave-otter` can't be extended: Katib only extends a sweep that used all its trials."


@pytest.mark.parametrize(
    ("sweep", "seen", "config", "trials", "denied"),
    [
        (RUNNING, SEEN, CONFIG, 9, ENDED),
        (replace(FINISHED, plan=None), SEEN, CONFIG, 9, ENDED),
        (
            replace(FINISHED, plan=PLAN, since=NOW - timedelta(hours=25)),
            SEEN,
            CONFIG,
            9,
            (
                "`lr-brave-otter` can't be extended: it ended more than 24 h ago. For later sweeps, set "
                "`extendable: true` in the space file."
            ),
        ),
        (
            FINISHED,
            Observation(),
            CONFIG,
            9,
            "`lr-brave-otter` can't be extended: its Katib experiment was deleted.",
        ),
        (
            FINISHED,
            Observation(experiment=TARGET_REACHED),
            CONFIG,
            9,
            ALL_USED,
        ),
        (FINISHED, SEEN, CONFIG, 501, "`lr-brave-otter` can have up to 500 trials; got trials=501."),
        (FINISHED, SEEN, FEW, 6, "`lr-brave-otter` can have up to 5 trials; got trials=6."),
        (
            replace(FINISHED, plan=replace(EXTENDABLE, space=GRID)),
            SEEN,
            CONFIG,
            7,
            "`lr-brave-otter` can have up to 6 trials; got trials=7.",
        ),
        (FINISHED, SEEN, CONFIG, 4, ENOUGH),
        (FINISHED, SEEN, CONFIG, 3, ENOUGH),
    ],
)
def test_extend_is_denied_with_the_reason(sweep, seen, config, trials, denied):
    assert denial_of(sweep, a_command(Action.EXTEND, trials=trials), seen=seen, config=config) == denied


def test_extend_is_allowed_for_24_hours_after_the_end():
    sweep = replace(FINISHED, plan=PLAN, since=NOW - timedelta(hours=24))
    assert applied(sweep, a_command(Action.EXTEND, trials=9)).extending


@pytest.mark.parametrize(("config", "trials"), [(FEW, 5), (CONFIG, 5), (CONFIG, 500)])
def test_extend_up_to_the_limit_is_allowed(config, trials):
    assert applied(FINISHED, a_command(Action.EXTEND, trials=trials), config=config).extending


GATED = replace(RUNNING, gated=True)
HELD = a_sweep(Phase.HELD, submitted=True, gated=True, reason="first trial failed")


def test_open_of_a_running_sweep_raises_the_experiments_counts():
    after = applied(GATED, a_command(Action.OPEN))
    assert (after.phase, after.gated, after.extending, after.attempt) == (Phase.RUNNING, False, True, 1)
    assert after.outbox == (Event(kind=EventKind.GATE_OPENED, by=OWNER),)


@pytest.mark.parametrize(
    ("action", "gated", "kind"),
    [(Action.OPEN, False, EventKind.GATE_OPENED), (Action.RETRY, True, EventKind.RETRIED)],
)
def test_open_or_retry_of_a_held_sweep_continues_in_a_new_experiment(action, gated, kind):
    after = applied(HELD, a_command(action))
    assert (after.phase, after.since, after.attempt, after.gated) == (Phase.PENDING, NOW, 2, gated)
    assert (after.submitted, after.extending) == (False, False)
    assert after.outbox == (Event(kind=kind, by=OWNER),)


@pytest.mark.parametrize(
    ("sweep", "action", "denied"),
    [
        (RUNNING, Action.OPEN, "`lr-brave-otter` isn't waiting for its first trial."),
        (GATED, Action.RETRY, "`lr-brave-otter` isn't on hold."),
        (HELD, Action.DRAIN, "`lr-brave-otter` is on hold."),
    ],
)
def test_command_about_the_gate_is_denied_in_other_states(sweep, action, denied):
    assert denial_of(sweep, a_command(action)) == denied


def test_audit_log_keeps_the_newest_fifty():
    sweep = RUNNING
    for number in range(51):
        sweep = with_entry(sweep, AuditEntry(at=NOW, user=str(number), action=Action.DRAIN))
    assert MAX_AUDIT_ENTRIES == 50
    assert [entry.user for entry in sweep.audit_log] == [str(number) for number in range(1, 51)]


def test_named_finds_trials_by_the_end_of_their_name():
    assert [trial.name for trial in named(LIVE, "xyz")] == ["otter-xyz"]
    assert named(LIVE, "") == named(LIVE, "otter") == []
