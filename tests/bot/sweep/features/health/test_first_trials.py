"""The message about a sweep's first trials, and the counts of failures that it and the end have."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.core.commands import Action, Command
from bot.core.events import Progress
from bot.core.record import Phase
from bot.core.request import Notify
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.sweep.decisions.commands import apply_command
from bot.sweep.decisions.parent_message import summary
from bot.sweep.features.health import decide, texts
from bot.sweep.features.health.state import Health, HealthState, HealthStatus
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import TOLD_IN_CHANNEL
from k8s.engine import TrialState
from tests.bot.factories import CONFIG, OWNER, STRANGER
from tests.bot.platform.slack.test_escaping import NASTY, escaped, safe, sweeps
from tests.bot.platform.slack.test_escaping import shown as blocks_are_safe
from tests.bot.sweep.model.observations import LATER, PENDING, RUNNING, a_pod, a_trial, kinds

BUSY = Diagnosis(key="unschedulable", text="No GPUs are free.", trial="t1", soft=True)
PULL = Diagnosis(key="image-pull", text="The node can't pull the image.", trial="t1")
FAILED = {"failed": True, "lasting": True}
CRASH = Diagnosis(key="crash", text="The training failed.", fix="Fix it.", trial="t1", **FAILED)
UP = a_pod("t1", running_since=LATER - timedelta(minutes=1))


def seen(*trouble, pods=(), **facts):
    return Observation(trouble=trouble, pods=pods, **facts)


def follow(sweep, seen):
    return decide.follow(sweep, seen, LATER)


def ended(sweep, *trials):
    """Return the events at the end of the sweep."""
    return decide.ended(replace(sweep, outbox=()), seen(trials=trials), CONFIG).outbox


def health(sweep):
    return sweep.of(HealthState).shown


def status(sweep):
    return health(sweep) and health(sweep).status


def test_wait_problem_and_recovery_change_one_message():
    waits = follow(PENDING, seen(BUSY))
    assert (status(waits), kinds(waits)) == (HealthStatus.WAITING, ["health"])
    stuck = follow(waits, seen(PULL))
    assert (status(stuck), kinds(stuck)) == (HealthStatus.UNHEALTHY, ["health"])
    well = follow(stuck, seen(pods=(UP,)))
    assert (status(well), health(well).trial) == (HealthStatus.RECOVERED, "t1")
    assert follow(well, seen(pods=(UP,))) == well
    assert follow(PENDING, seen(pods=(UP,))) == PENDING
    assert follow(RUNNING, seen(BUSY)) == RUNNING
    assert status(follow(RUNNING, seen(PULL))) is HealthStatus.UNHEALTHY
    once = follow(PENDING, seen(PULL))
    assert follow(once, seen(replace(PULL, detail="another try"))) == once
    assert health(follow(once, seen(replace(PULL, trial="t2")))).trial == "t2"
    sweep = RUNNING.put(HealthState(shown=ILL, ts="1.2", fingerprint="x"))
    cancel = Command(action=Action.CANCEL, user=STRANGER, user_name="bo")
    denied = apply_command(sweep, cancel, seen(), CONFIG, LATER)
    assert denied.of(HealthState) == HealthState(shown=ILL, ts="1.2")


@pytest.mark.parametrize(
    ("facts", "recovered"),
    [
        ({"pods": (UP,)}, True),
        ({"trials": (a_trial("t1", TrialState.SUCCEEDED),)}, True),
        ({"trials": (a_trial("t1"),)}, False),
        ({"trials": (a_trial("t1", TrialState.FAILED),)}, False),
        ({"pods": (a_pod("t1"),)}, False),
        ({"pods": (replace(UP, abandoned=LATER),)}, False),
        ({"pods": (UP,), "nodes": 2}, False),  # the other node's pod is missing
    ],
)
def test_first_trials_recover_once_one_runs_or_has_succeeded(facts, recovered):
    after = follow(follow(PENDING, seen(PULL)), seen(**facts))
    assert status(after) is (HealthStatus.RECOVERED if recovered else HealthStatus.UNHEALTHY)


LOST = Diagnosis(key="node", text="Node `n1` isn't responding.", trial="t1")
OTHER = replace(UP, name="t2", job="t2")
BOTH = (a_trial("t1"), a_trial("t2"))


@pytest.mark.parametrize(
    ("trials", "pods", "recovered"),
    [
        (BOTH, (OTHER, UP), "t1"),
        (BOTH, (OTHER,), ""),
        (BOTH, (OTHER, replace(UP, deleted=True)), ""),  # its node can't report the end
        ((a_trial("t1", TrialState.KILLED), a_trial("t2")), (OTHER,), "t2"),
    ],
)
def test_only_the_trial_with_the_problem_recovers_from_it(trials, pods, recovered):
    other = replace(LOST, trial="t2")
    sick = follow(follow(RUNNING, seen(LOST, other, trials=BOTH)), seen(other, LOST, trials=BOTH))
    assert health(sick).trial == "t1"
    after = follow(sick, seen(trials=trials, pods=pods))
    assert (health(after).trial, status(after)) == (
        recovered or "t1",
        HealthStatus.RECOVERED if recovered else HealthStatus.UNHEALTHY,
    )


def test_failure_is_the_messages_last_state_or_an_event_and_counts_those_alike():
    failed = follow(PENDING, seen(CRASH))
    assert (status(failed), health(failed).more) == (HealthStatus.FAILED, 0)
    assert follow(failed, seen(CRASH)) == failed
    two = follow(failed, seen(CRASH, replace(CRASH, trial="t2")))
    assert (health(two).trial, health(two).more) == ("t1", 1)
    assert follow(two, seen(pods=(UP,))) == two
    assert ended(replace(two, progress=Progress(failed=2))) == ()
    memory = replace(CRASH, key="oom", text="Out of memory.", trial="t2")
    late = follow(replace(RUNNING, progress=Progress(succeeded=1)), seen(CRASH))
    assert (health(late), kinds(late)) == (None, ["trial_failed"])
    assert late.outbox[0].text == ":warning: Trial `t1` failed: The training failed. *Fix:* Fix it."
    logged = follow(replace(RUNNING, progress=Progress(succeeded=1)), seen(replace(CRASH, detail="<x>")))
    assert logged.outbox[0].text.endswith("Fix it. Last lines of the log:\n```\n&lt;x&gt;\n```")
    both = follow(follow(PENDING, seen(CRASH)), seen(CRASH, memory))
    assert (health(both).key, kinds(both)) == ("crash", ["health", "trial_failed"])


def test_end_counts_the_failures_that_no_message_has_counted():
    sweep = replace(RUNNING, progress=Progress(succeeded=1))
    for number in (1, 2, 3):
        sweep = follow(sweep, seen(replace(CRASH, trial=f"t{number}")))
    counted = replace(sweep, progress=Progress(succeeded=1, failed=3))
    alike = texts.failed_alike("t1", 2)
    assert alike.text == ":warning: 2 more trials failed the same way as `t1`."
    assert ended(counted) == (alike,)
    for failed, words in ((4, "1 more trial failed and wasn't"), (5, "2 more trials failed and weren't")):
        first, rest = ended(replace(sweep, progress=Progress(succeeded=1, failed=failed)))
        assert (first, rest.text) == (
            alike,
            f":warning: {words} diagnosed. Find failed trials with `results`, then run `logs TRIAL`.",
        )


def test_end_counts_undiagnosed_failures_beside_a_nan_and_a_problem_of_no_trial():
    nan = Diagnosis(key="nan", text="The loss became NaN.", trial="t1", lasting=True)
    sweep = follow(PENDING, seen(nan, replace(nan, key="settings", trial="")))
    sweep = follow(sweep, seen(replace(CRASH, trial="t2")))
    sweep = replace(sweep, progress=Progress(succeeded=1, failed=2))
    left = ended(sweep, a_trial("t1", TrialState.SUCCEEDED), a_trial("t2", TrialState.FAILED))
    assert left == (texts.failed_alike("", 1),)


@pytest.mark.parametrize(
    ("notify", "posted", "sent"),
    [
        (Notify.DM, True, OWNER),
        (Notify.DM, False, OWNER),
        (Notify.CHANNEL, True, ""),
        (Notify.CHANNEL, False, None),  # the message itself is new
    ],
)
def test_owner_is_notified_of_a_failure_by_a_new_message(notify, posted, sent):
    asked = replace(PENDING, permalink="https://s/p1", request=replace(PENDING.request, notify=notify))
    before = replace(follow(asked, seen(BUSY)), outbox=()) if posted else asked
    after = follow(before, seen(replace(CRASH, cause="ValueError: a_b `x`")))
    found = [event for event in after.outbox if event.kind == "first_failed"]
    assert [event.to_user for event in found] == ([] if sent is None else [sent])
    to_owner = ":warning: *<https://s/p1|lr-brave-otter>* in <#C1> · Trial `t1` failed: ValueError: a_b ˋxˋ"
    text = {
        "": f":warning: <@{OWNER}> Trial `t1` failed: ValueError: a_b ˋxˋ",
        OWNER: f"{to_owner} The training failed. *Fix:* Fix it.",
    }
    assert [event.text for event in found] == [text.get(sent)] * len(found)
    assert (after.cause, after.steps) == ("ValueError: a_b `x`", {"first": "✗ First trial failed"})
    assert [event.loud for event in found] == [sent == ""] * len(found)
    assert after.failure == "The training failed. *Fix:* Fix it."
    assert (TOLD_IN_CHANNEL in after.sent_keys) is (notify is Notify.CHANNEL)
    assert ("ValueError" in texts.text(after)) == (sent != ""), "the cause stands once in the thread"
    assert "The training failed." in texts.text(after)


ILL = Health(
    status=HealthStatus.WAITING, key="unschedulable", text="No room.", fix="Wait.", detail="0/2", trial="t1"
)


def message_of(sweep, **changes):
    return texts.message(sweep.put(HealthState(shown=replace(ILL, **changes))))


WAITS = ":hourglass_flowing_sand: The first trial isn't running yet. No room."
LOG = "```\n0/2\n```"


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, [WAITS, "*Fix:* Wait.", LOG]),
        ({"trial": "", "fix": "", "detail": ""}, [WAITS]),
        (
            {"status": HealthStatus.UNHEALTHY, "parameters": {"lr": "0.01"}},
            [":warning: Trial `t1` isn't healthy. No room.", "*Fix:* Wait.", "*Parameters:* `lr=0.01`", LOG],
        ),
        (
            {"status": HealthStatus.FAILED, "parameters": {"lr": "0.01"}, "more": 2},
            [
                f":warning: <@{OWNER}> Trial `t1` failed: No room.",
                "*Fix:* Wait.",
                "*Command:* `python train.py --lr=0.01`",
                "2 more trials failed the same way.",
                "Last lines of the log:",
                LOG,
            ],
        ),
        (
            {"status": HealthStatus.RECOVERED},
            [":white_check_mark: Recovered: trial `t1` is healthy. Earlier problem: No room."],
        ),
    ],
)
def test_message_says_state_cause_fix_and_evidence(changes, lines):
    assert message_of(RUNNING, **changes).text == "\n".join(lines)


@pytest.mark.parametrize("status", HealthStatus)
def test_message_of_first_trials_can_be_edited_and_offers_to_cancel_while_it_needs_action(status):
    """Slack takes 4,000 characters in an edit."""
    message = message_of(RUNNING, status=status, detail="<" * 9000)
    assert "No room." in message.text
    assert len(message.text) < 4000
    needs_action = status in {HealthStatus.UNHEALTHY, HealthStatus.FAILED}
    assert ("Cancel sweep" in str(message.blocks)) is needs_action
    assert message_of(replace(RUNNING, phase=Phase.STOPPING), status=status).blocks == ()
    assert texts.message(RUNNING) is None


def test_first_trial_that_fits_no_node_mentions_the_owner_and_is_shown_in_the_parent():
    why = "it requests 4 GPUs, and the largest node has 2."
    stuck = replace(
        ILL, status=HealthStatus.UNHEALTHY, key=texts.NEVER_FITS, text=f"The trial can't fit: {why}"
    )
    sweep = PENDING.put(HealthState(shown=stuck))
    assert texts.is_loud(sweep)
    assert f"<@{OWNER}>" in texts.message(sweep).text
    assert f":warning: The first trial can't run: {why}" in summary(sweep)
    well = sweep.put(HealthState(shown=replace(stuck, status=HealthStatus.RECOVERED)))
    assert not texts.is_loud(well)
    assert "can't run" not in summary(well)


@given(sweeps(), st.sampled_from(HealthStatus), NASTY, NASTY)
def test_external_text_in_messages_is_escaped(sweep, status, name, detail):
    """Text and fix are Sweepbot's; the log isn't."""
    state = replace(ILL, status=status, detail=detail, trial=name, parameters={name: detail})
    message = texts.message(sweep.put(HealthState(shown=state)))
    blocks_are_safe(message.blocks)
    assert len(safe(message.text)) < 4000
    failed = Diagnosis(key="k", text="x", cause=name, trial=name, detail=detail)
    escaped(texts.trial_failed(failed).text)
    escaped(texts.first_failed(sweep, replace(state, cause=name)).text)
    escaped(texts.failed_alike(name, 2).text)


def test_waiting_message_about_the_first_attempt_survives_the_second():
    failed = Diagnosis(key="memory", text="Out of memory.", trial="t-1", failed=True, lasting=True)
    first = decide.follow(RUNNING, Observation(trouble=(failed,)), LATER)
    second = replace(first, phase=Phase.PENDING, attempt=2, attempt_features={}, sent_keys=())
    for diagnosis in (BUSY, PULL):
        second = decide.follow(second, Observation(trouble=(diagnosis,)), LATER)
    texts = [event.text for event in second.outbox if event.kind == "health"]
    assert ["Out of memory." in text for text in texts] == [True, False]
    assert PULL.text in texts[1]
