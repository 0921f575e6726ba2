"""Trials without a metrics collector start again; interrupted ones are reported until they run again."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given

from bot.core.events import merged, posted_text
from bot.core.record import Phase
from bot.sweep.decisions.required_changes import needs_fresh_read
from bot.sweep.features.interruptions import texts
from bot.sweep.features.interruptions.causes import (
    pod_interruption,
    queue_interruption,
    worker_interruption,
)
from bot.sweep.features.interruptions.decide import changes, follow
from bot.sweep.features.interruptions.state import Interruption, InterruptionsSeen, InterruptionState
from bot.sweep.model.observation import Observation
from k8s.engine import TrialState
from k8s.kueue import Workload
from tests.bot.factories import NOW, OWNER, PLAN, a_sweep
from tests.bot.platform.slack.test_escaping import NASTY, escaped
from tests.bot.sweep.model.observations import LATER, OPEN, RUNNING, a_job, a_pod, a_trial
from tests.cases import cases

PULLING = ("ErrImagePull", "unexpected EOF")
MISSING = ("ErrImagePull", "not found")
LONG_AGO, JUST_NOW = LATER - timedelta(seconds=61), LATER - timedelta(seconds=60)
ABANDONED = a_pod("t1", abandoned=NOW, running_since=NOW)
LOST = "its node was removed"


def observed(*trials, interruptions=(), pull_errors=None, **facts):
    seen = Observation(experiment=OPEN, trials=trials or (a_trial("t1"),), **facts)
    return seen.put(InterruptionsSeen(interruptions=interruptions, pull_errors=pull_errors or {}))


@cases(
    ("pod", "before", "restarts"),
    [
        ({"abandoned": NOW, "running_since": NOW}, (), True),
        ({"abandoned": NOW, "running_since": NOW}, ("u-a",), True),
        ({"abandoned": NOW, "running_since": NOW}, ("u-a", "u-b"), False),
        ({"abandoned": LONG_AGO, "waiting": PULLING}, (), True),
        ({"abandoned": LONG_AGO, "waiting": PULLING}, ("u-a",), False),
        ({"abandoned": JUST_NOW, "waiting": PULLING}, (), False),
        ({"abandoned": LONG_AGO, "waiting": MISSING}, (), False),
        ({"running_since": NOW}, (), False),
        ({"abandoned": NOW, "running_since": NOW, "deleted": True}, (), False),
        ({"abandoned": NOW, "running_since": NOW, "job_uid": "u-old"}, (), False),
    ],
)
def test_trial_without_a_collector_is_restarted(pod, before, restarts):
    known = dict.fromkeys(before, "t1") | {"u-z": "t9"}
    seen = observed(jobs=(a_job("t1"),), pods=(a_pod("t1", **pod),))
    sweep = follow(RUNNING.put(InterruptionState(restarted=known)), seen, LATER)
    assert sweep.of(InterruptionState).restarted == known | ({"u-t1": "t1"} if restarts else {})
    assert sweep.outbox == (texts.restarted("t1", pod.get("waiting", ("", ""))[1]),) * restarts
    assert [job.uid for job in changes(sweep, PLAN, seen, LATER).delete] == ["u-t1"] * restarts


def test_restart_is_decided_from_a_direct_read():
    after = RUNNING.put(InterruptionState(restarted={"u-t1": "t1"}))
    assert needs_fresh_read(RUNNING, after, Observation(experiment=OPEN), NOW)
    assert not needs_fresh_read(after, after, Observation(experiment=OPEN), NOW)


@pytest.mark.parametrize(
    ("sweep", "trials", "jobs"),
    [
        (replace(RUNNING, to_kill={"t1": OWNER}), (a_trial("t1"),), (a_job("t1"),)),
        (RUNNING.put(InterruptionState(restarted={"u-t1": "t1"})), (a_trial("t1"),), (a_job("t1"),)),
        (RUNNING, (a_trial("t1", TrialState.SUCCEEDED, 0.5),), (a_job("t1"),)),
        (RUNNING, (a_trial("t1"),), ()),
    ],
)
def test_trial_that_ends_or_restarts_already_is_not_restarted(sweep, trials, jobs):
    after = follow(sweep, observed(*trials, jobs=jobs, pods=(ABANDONED,)), LATER)
    assert after.of(InterruptionState).restarted == sweep.of(InterruptionState).restarted
    assert after.outbox == ()


def test_restarted_trial_is_reported_with_the_error_of_its_first_pull():
    trials, jobs = (a_trial("t0"), a_trial("t1")), (a_job("t0"), a_job("t1"))
    sweep = follow(RUNNING, observed(*trials, jobs=jobs, pull_errors={"t1": "connection refused"}), NOW)
    again = follow(sweep, observed(*trials, jobs=jobs, pull_errors={"t1": "back-off"}), NOW)
    assert again == sweep, "each retry has another message"
    sweep = follow(sweep, observed(*trials, jobs=jobs, pods=(a_pod("t0"), ABANDONED)), LATER)
    [event] = sweep.outbox
    assert event.text == (
        ":hourglass_flowing_sand: Trial `t1` restarted. The image couldn't be pulled at first, and Katib's "
        "metrics collector gave up before the training started. Katib starts a new pod."
        "\n```\nconnection refused\n```"
    )
    ended = follow(sweep, observed(a_trial("t1", TrialState.SUCCEEDED)), LATER)
    assert ended.of(InterruptionState).pull_errors == {}


def test_trial_is_interrupted_until_it_runs_again():
    up = {"jobs": (a_job("t1"),), "pods": (a_pod("t1", running_since=NOW),)}
    sweep = follow(RUNNING, observed(**up), NOW)
    assert sweep.of(InterruptionState) == InterruptionState(ran=("t1",))
    why = Interruption(trial="t1", why=LOST, queued=False)
    gone = observed(jobs=(a_job("t1"),), interruptions=(why,))
    two_nodes = replace(sweep, plan=replace(PLAN, nodes=2))
    assert follow(two_nodes, gone, NOW).outbox == (texts.interrupted(why, 2),)
    sweep = follow(sweep, gone, NOW)
    assert follow(sweep, gone, LATER) == sweep, "it is reported once"
    assert sweep.of(InterruptionState) == InterruptionState(interrupted={"t1": NOW})
    assert texts.lines(sweep) == ["1 interrupted trial will start again."]
    for not_yet in (
        {"jobs": (a_job("t1", suspended=True),)},
        {"pods": (a_pod("t1", running_since=NOW, deleted=True),)},
        {"pods": (a_pod("t1", running_since=NOW, disruption=("PreemptionByScheduler", "")),)},
        {"nodes": 2},  # its other worker isn't up
    ):
        assert follow(sweep, observed(**up | not_yet), LATER) == sweep, not_yet
    sweep = follow(sweep, observed(**up), NOW + timedelta(minutes=65))
    assert sweep.outbox == (texts.interrupted(why, 1), texts.runs_again("t1", timedelta(minutes=65)))
    assert sweep.of(InterruptionState) == InterruptionState(ran=("t1",))
    assert texts.lines(sweep) == []


@pytest.mark.parametrize(
    "changes", [{"holds": ("pause",)}, {"draining": "drained"}, {"phase": Phase.CANCELLED}], ids=str
)
def test_line_is_only_for_trials_that_start_again(changes):
    state = InterruptionState(interrupted={"t1": NOW, "t2": NOW})
    sweep = a_sweep(Phase.RUNNING, state, submitted=True)
    assert texts.lines(sweep) == ["2 interrupted trials will start again."]
    assert texts.lines(replace(sweep, **changes)) == []


CHECKPOINT = "last checkpoint if the training saves one, else from the beginning."
ONE = ":hourglass_flowing_sand: Trial `t1` stopped running: its node was removed. This isn't a failure: "
TWO = (
    ":hourglass_flowing_sand: Trial `t2` stopped running: its node was removed; 1 more trial stopped for the "
    "same reason. This isn't a failure: "
)


@pytest.mark.parametrize(
    ("nodes", "queued", "one", "two"),
    [
        (
            1,
            False,
            "it starts again once a node has room, from its",
            "they start again once a node has room, from their",
        ),
        (
            1,
            True,
            "it starts again once its queue has quota, from its",
            "they start again once their queue has quota, from their",
        ),
        (
            2,
            True,
            "all of its 2 workers start again once its queue has quota and 2 nodes have room, from its",
            "all 2 workers of each start again once their queue has quota and 2 nodes have room, from their",
        ),
    ],
)
def test_message_says_when_interrupted_trials_start_again(nodes, queued, one, two):
    events = [
        texts.interrupted(Interruption(trial=trial, why=LOST, queued=queued), nodes) for trial in ("t1", "t2")
    ]
    assert events[0].text == f"{ONE}{one} {CHECKPOINT}"
    other = texts.interrupted(Interruption(trial="t3", why="another", queued=queued), nodes)
    assert [posted_text(event) for event in merged((*events, other))] == [
        f"{TWO}{two} {CHECKPOINT}",
        other.text,
    ]


OF_SWEEP = Workload(name="w", namespace="ml", job="j", job_uid="u", sweep="lr-calm-owl")
URGENT = replace(OF_SWEEP, priority_class="high")
PREEMPTED = (
    "Preempted to accommodate a workload (UID: a, JobUID: b) due to prioritization in the ClusterQueue"
)


@cases(
    ("eviction", "by", "why"),
    [
        (None, None, "its Job was suspended"),
        (("Deactivated", ""), None, "its Workload was deactivated"),
        (("Surprise", ""), None, "Kueue evicted it (Surprise)"),
        (("Preempted", ""), None, "Kueue preempted it for another workload"),
        (
            ("Preempted", f"{PREEMPTED}; preemptor path: /a"),
            OF_SWEEP,
            "Kueue preempted it for a trial of lr-calm-owl, due to prioritization in the ClusterQueue",
        ),
        (
            ("Preempted", ""),
            URGENT,
            "Kueue preempted it for a trial of lr-calm-owl (priority class high)",
        ),
        (("Preempted", ""), replace(URGENT, sweep=""), "Kueue preempted it for j in namespace ml"),
        (("Preempted", ""), replace(URGENT, sweep="", job=""), "Kueue preempted it for w in namespace ml"),
    ],
)
def test_trial_whose_job_is_suspended_waits_for_quota_because_of_its_eviction(eviction, by, why):
    workload = eviction and replace(OF_SWEEP, eviction=eviction)
    assert queue_interruption("t1", workload, by) == Interruption(trial="t1", why=why, queued=True)


KUBELET = "TerminationByKubelet"


@cases(
    ("disruption", "why"),
    [
        (("DeletionByTaintManager", "x"), "{its} node became unavailable"),
        (("EvictionByEvictionAPI", "x"), "{it} was evicted, as when a node is drained"),
        ((KUBELET, ""), "the kubelet terminated {it}"),
        ((KUBELET, "low on memory"), "the kubelet terminated {it}: low on memory"),
        (("New", "x"), "{its} pod was disrupted (New)"),
    ],
)
def test_disrupted_pod_or_worker_is_named_with_what_stopped_it(disruption, why):
    pod = a_pod("t1", index=1, disruption=disruption)
    of_pod = Interruption(trial="t1", why=why.format(it="it", its="its"), queued=False)
    assert pod_interruption(pod) == of_pod
    of_worker = why.format(it="worker 2 of 3", its="worker 2's")
    found = worker_interruption(pod, 3, queued=True)
    assert found == Interruption(trial="t1", why=of_worker, queued=True, job_uid="u-t1")


def test_trials_that_run_again_are_one_message():
    events = (texts.runs_again("t1", timedelta(0)), texts.runs_again("t2", timedelta(minutes=5)))
    assert events[0].text == ":runner: Running again: trial `t1`."
    [both] = merged(events)
    assert posted_text(both) == ":runner: Running again, after 5 min: trial `t2` and 1 more trial."


@given(NASTY, NASTY)
def test_external_text_is_escaped(trial, why):
    for event in (
        texts.interrupted(Interruption(trial=trial, why=why, queued=True), 2),
        texts.runs_again(trial, timedelta(minutes=2)),
        texts.restarted(trial, why),
    ):
        escaped(event.text)
        escaped(event.many)
