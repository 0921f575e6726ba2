"""The message about a sweep's first trials, and the counts of failures that it and the end have."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.events import EventKind, HealthStatus, Progress
from bot.core.record import Phase
from bot.core.request import Notify
from bot.health.diagnosis import Diagnosis
from bot.lifecycle.first_trials import failed_alike, follow
from bot.lifecycle.observation import Observation
from k8s.katib.status import TrialState
from tests.bot.factories import OWNER
from tests.bot.lifecycle.observations import LATER, PENDING, RUNNING, a_pod, a_trial, kinds

BUSY = Diagnosis(key="unschedulable", text="No GPUs are free.", trial="t1", soft=True)
PULL = Diagnosis(key="image-pull", text="The node can't pull the image.", trial="t1")
FAILED = {"failed": True, "lasting": True}
CRASH = Diagnosis(key="crash", text="The training failed.", fix="Fix it.", trial="t1", **FAILED)
UP = a_pod("t1", running_since=LATER - timedelta(minutes=1))


def seen(*trouble, pods=(), **facts):
    return Observation(trouble=trouble, pods=pods, **facts)


def status(sweep):
    return sweep.health and sweep.health.status


def test_wait_problem_and_recovery_change_one_message():
    waits = follow(PENDING, seen(BUSY))
    assert (status(waits), kinds(waits)) == (HealthStatus.WAITING, [EventKind.HEALTH])
    stuck = follow(waits, seen(PULL))
    assert (status(stuck), kinds(stuck)) == (HealthStatus.UNHEALTHY, [EventKind.HEALTH])
    well = follow(stuck, seen(pods=(UP,)))
    assert (status(well), well.health.trial) == (HealthStatus.RECOVERED, "t1")
    assert follow(well, seen(pods=(UP,))) == well


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


def test_healthy_sweep_has_no_message():
    assert follow(PENDING, seen(pods=(UP,))) == PENDING


def test_wait_is_only_shown_until_the_first_trial_runs():
    assert follow(RUNNING, seen(BUSY)) == RUNNING
    assert status(follow(RUNNING, seen(PULL))) is HealthStatus.UNHEALTHY


def test_same_text_with_another_detail_is_no_edit():
    once = follow(PENDING, seen(PULL))
    assert follow(once, seen(replace(PULL, detail="another try"))) == once
    assert follow(once, seen(replace(PULL, trial="t2"))).health.trial == "t2"


def test_failure_is_the_messages_last_state_and_counts_those_alike():
    failed = follow(PENDING, seen(CRASH))
    assert (status(failed), failed.health.more) == (HealthStatus.FAILED, 0)
    assert follow(failed, seen(CRASH)) == failed
    two = follow(failed, seen(CRASH, replace(CRASH, trial="t2")))
    assert (two.health.trial, two.health.more) == ("t1", 1)
    assert follow(two, seen(pods=(UP,))) == two
    assert failed_alike(replace(two, progress=Progress(failed=2))) == ()


def test_failure_after_a_success_or_of_another_cause_is_an_event():
    memory = replace(CRASH, key="oom", text="Out of memory.", trial="t2")
    late = follow(replace(RUNNING, progress=Progress(succeeded=1)), seen(CRASH))
    assert (late.health, kinds(late)) == (None, [EventKind.TRIAL_FAILED])
    assert late.outbox[0].text == "The training failed. *Fix:* Fix it."
    both = follow(follow(PENDING, seen(CRASH)), seen(CRASH, memory))
    assert (both.health.key, kinds(both)) == ("crash", [EventKind.HEALTH, EventKind.TRIAL_FAILED])


def test_end_counts_the_failures_that_no_message_has_counted():
    sweep = replace(RUNNING, progress=Progress(succeeded=1))
    for number in (1, 2, 3):
        sweep = follow(sweep, seen(replace(CRASH, trial=f"t{number}")))
    counted = replace(sweep, progress=Progress(succeeded=1, failed=3))
    assert [(event.trial, event.more) for event in failed_alike(counted)] == [("t1", 2)]
    unexplained = replace(sweep, progress=Progress(succeeded=1, failed=5))
    assert [(event.trial, event.more) for event in failed_alike(unexplained)] == [("t1", 2), ("", 2)]


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
    asked = replace(PENDING, request=replace(PENDING.request, notify=notify))
    before = replace(follow(asked, seen(BUSY)), outbox=()) if posted else asked
    after = follow(before, seen(CRASH))
    found = [event.to_user for event in after.outbox if event.kind is EventKind.FIRST_FAILED]
    assert found == ([] if sent is None else [sent])
    assert after.phase is Phase.PENDING
