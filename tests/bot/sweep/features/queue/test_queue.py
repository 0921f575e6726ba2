"""The priority that a sweep gets when it is raised or lowered, and how it reaches its trials."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action, Command
from bot.core.events import Progress
from bot.core.record import Phase
from bot.sweep.decisions.advance import requeue_after
from bot.sweep.decisions.commands import apply_command
from bot.sweep.decisions.required_changes import required_changes
from bot.sweep.features.queue.commands import lines
from bot.sweep.features.queue.decide import QueueSeen, QueueState, changes, follow
from bot.sweep.model.observation import Observation
from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL, Workload, activated, relabeled
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, PLAN, a_sweep
from tests.bot.sweep.model.observations import OPEN, a_job, a_pod, a_trial
from tests.scenarios.queued_sweep import CLASSES, POLICY

QUEUED = replace(CONFIG, **vars(POLICY))
SEEN = Observation().put(QueueSeen(priority_values=CLASSES))


def asked(action, priority, seen=SEEN, queue="research"):
    plan = replace(PLAN, queue=queue, priority=priority)
    sweep = a_sweep(Phase.RUNNING, submitted=True, plan=plan)
    return apply_command(sweep, Command(action=action, user=ADMIN, user_name="x"), seen, QUEUED, NOW)


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        (Action.RAISE, "low", "normal"),
        (Action.RAISE, "normal", "high"),
        (Action.LOWER, "high", "normal"),
        (Action.LOWER, "normal", "low"),
        (Action.RAISE, "", "high"),  # without a priority, or with one that isn't configured anymore
        (Action.LOWER, "", "low"),
    ],
)
def test_priority_changes_by_one_step(action, before, after):
    sweep, class_name = asked(action, before), f"sweeps-{after}"
    state = QueueState(labels={PRIORITY_LABEL: class_name}, value=CLASSES[class_name])
    assert (sweep.plan.priority, sweep.of(QueueState)) == (after, state)
    [event] = sweep.outbox
    assert event.text == f":runner: <@{ADMIN}> changed this sweep to priority {after}."


@pytest.mark.parametrize(
    ("action", "priority", "text"),
    [
        (Action.RAISE, "high", "already has the highest configured priority: high."),
        (Action.LOWER, "low", "already has the lowest configured priority: low."),
    ],
)
def test_last_priority_cannot_change_further(action, priority, text):
    after = asked(action, priority)
    assert text in after.outbox[0].text
    assert after.of(QueueState) == QueueState()


@pytest.mark.parametrize("action", [Action.RAISE, Action.HOLD])
def test_sweep_outside_kueue_has_no_place_to_change(action):
    [event] = asked(action, "", queue="").outbox
    assert event.text.startswith("`lr-brave-otter` isn't in a Kueue queue, so its place can't change. *Fix:*")


def test_priority_whose_class_cannot_be_read_is_refused():
    after = asked(Action.RAISE, "low", Observation().put(QueueSeen(priority_values={"sweeps-low": 10})))
    assert "can't read the WorkloadPriorityClass `sweeps-normal`" in after.outbox[0].text
    assert after.of(QueueState) == QueueState()


@pytest.mark.parametrize("action", [Action.RAISE, Action.LOWER, Action.HOLD])
def test_change_is_applied_at_once(action):
    plan = replace(PLAN, queue="research", priority="normal")
    before = a_sweep(Phase.RUNNING, submitted=True, plan=plan)
    changed = asked(action, "normal")
    assert requeue_after(before, changed, NOW) == timedelta(0)
    assert requeue_after(changed, changed, NOW) > timedelta(0)


WANTED = {"high": 1000, "low": 10}


def a_queued_job(name, priority, *, suspended):
    labels = {QUEUE_LABEL: "research", PRIORITY_LABEL: f"sweeps-{priority}"}
    return a_job(name, suspended=suspended, kueue_labels=labels)


def a_workload(name, priority):
    return Workload(name=f"w-{name}", namespace="sweeps", job=name, job_uid=f"u-{name}", priority=priority)


def followed(wanted, runs, own, waits, lifted=()):
    """Return the sweep after an observation, and the names of the patched objects in their order.

    Args:
        runs, own: the label of the running trial's Job, and the priority of its Workload.
        waits: the label of the waiting trial's Job; its Workload isn't read.
    """
    state = QueueState(labels={PRIORITY_LABEL: f"sweeps-{wanted}"}, value=WANTED[wanted], lifted=lifted)
    sweep = a_sweep(Phase.RUNNING, state, submitted=True, plan=replace(PLAN, queue="research"))
    facts = {
        "experiment": OPEN,
        "trials": (a_trial("runs"), a_trial("waits")),
        "jobs": (a_queued_job("runs", runs, suspended=False), a_queued_job("waits", waits, suspended=True)),
    }
    seen = Observation(**facts)
    if own is not None:
        seen = seen.put(QueueSeen(workloads=(a_workload("runs", own),), looked_up=frozenset({"u-runs"})))
    sweep = follow(sweep, seen, NOW)
    return sweep, [patch.ref.name for patch in changes(sweep, sweep.plan, seen, NOW).patch]


@pytest.mark.parametrize(
    ("case", "patched", "lifted"),
    [
        # A raise reaches the running trial first, and the waiting one only if its Workload was read.
        (("high", "normal", None, "normal"), [], ()),
        # Kueue resets a priority that the label doesn't name when it starts.
        (("high", "normal", 100, "normal"), ["runs", "w-runs", "waits"], ()),
        (("high", "normal", 1000, "high"), [], ("u-runs",)),
        # Lowered to what its label has named all the time.
        (("low", "low", 1000, "normal"), ["waits"], ()),
        (("low", "low", 1000, "low"), ["w-runs"], ()),
        (("low", "low", 10, "low"), [], ("u-runs",)),
        # Relabeled in the moment of its admission.
        (("high", "high", 100, "high"), ["w-runs"], ()),
    ],
)
def test_running_trials_are_compared_by_their_workloads_own_priority(case, patched, lifted):
    sweep, found = followed(*case)
    assert (found, sweep.of(QueueState).lifted) == (patched, lifted)


def test_trial_that_was_preempted_is_compared_again():
    sweep, _ = followed("high", "high", None, "high", lifted=("u-runs", "u-waits"))
    assert sweep.of(QueueState).lifted == ("u-runs",)


def test_hold_takes_waiting_trials_out_of_the_queue_and_a_release_puts_them_back():
    jobs = (a_queued_job("runs", "low", suspended=False), a_queued_job("waits", "low", suspended=True))
    plan = replace(PLAN, queue="research")
    sweep = a_sweep(Phase.RUNNING, submitted=True, plan=plan, progress=Progress(waits_for="free GPUs"))

    def observed(*, active):
        workload = replace(a_workload("waits", 10), active=active)
        seen = Observation(experiment=OPEN, jobs=jobs, pods=(a_pod("runs", running_since=NOW),))
        return seen.put(QueueSeen(workloads=(workload,), looked_up=frozenset({"u-waits"})))

    def patched(sweep, seen):
        return [(p.ref.name, p.body) for p in changes(sweep, sweep.plan, seen, NOW).patch]

    def commanded(sweep, action):
        sweep = apply_command(sweep, Command(action=action, user=OWNER, user_name="ada"), SEEN, QUEUED, NOW)
        return sweep, sweep.outbox[-1].text

    held, text = commanded(sweep, Action.HOLD)
    assert text == (
        ":hourglass_flowing_sand: *ada* held this sweep's waiting trials. Running trials continue. To "
        "release them: `/sweep queue release lr-brave-otter`."
    )
    assert lines(held) == [
        "*ada* held the waiting trials. Release them: `/sweep queue release lr-brave-otter`."
    ]
    held = follow(held, observed(active=True), NOW)
    assert held.progress.waits_for == "", "they wait for the release"
    assert patched(held, observed(active=True)) == [("w-waits", activated(active=False))]
    held = follow(held, observed(active=False), NOW)
    assert held.of(QueueState).parked == ("u-waits",)
    assert patched(held, observed(active=False)) == []
    free, text = commanded(held, Action.UNHOLD)
    assert text == ":runner: *ada* released this sweep's waiting trials. They're back in the queue."
    assert (lines(free), lines(replace(held, phase=Phase.PAUSED))) == ([], [])
    assert patched(free, observed(active=False)) == [("w-waits", activated(active=True))]
    assert follow(free, observed(active=True), NOW).of(QueueState) == QueueState()


def test_move_is_for_new_trials_and_waiting_ones():
    sweep = a_sweep(Phase.RUNNING, submitted=True, plan=replace(PLAN, queue="research"))
    command = Command(action=Action.MOVE, user=ADMIN, user_name="x", queue="urgent")
    moved = apply_command(sweep, command, SEEN, QUEUED, NOW)
    assert moved.plan.queue == "urgent"
    assert moved.of(QueueState) == QueueState(labels={QUEUE_LABEL: "urgent"})
    [event] = moved.outbox
    assert event.text == (
        f":runner: <@{ADMIN}> changed this sweep to queue urgent. Running trials stay in their queue."
    )
    waits = Observation(jobs=(a_queued_job("waits", "low", suspended=True),))
    [patch] = changes(moved, moved.plan, waits, NOW).patch
    assert (patch.ref.name, patch.body) == ("waits", relabeled({QUEUE_LABEL: "urgent"}))
    assert patch.optional, "Kueue can have admitted it meanwhile"
    done = Observation(jobs=(a_job("waits", suspended=True, kueue_labels={QUEUE_LABEL: "urgent"}),))
    assert changes(moved, moved.plan, done, NOW).patch == ()


@pytest.mark.parametrize("phase", [Phase.STOPPING, Phase.CANCELLED])
def test_ended_sweep_is_denied_in_its_own_words(phase):
    sweep = a_sweep(phase, plan=replace(PLAN, queue="research"), cancelled_by=OWNER)
    command = Command(action=Action.HOLD, user=ADMIN, user_name="x")
    [event] = apply_command(sweep, command, SEEN, QUEUED, NOW).outbox
    assert event.text == "`lr-brave-otter` is stopping or has ended."


def test_hold_and_raise_at_once_both_reach_the_workload():
    job = replace(a_job("t-1"), kueue_labels={QUEUE_LABEL: "q"})
    state = QueueState(labels={PRIORITY_LABEL: "high"}, value=9, held_by=OWNER)
    workload = Workload(name="w-1", namespace="n", job="t-1", job_uid=job.uid, priority=1)
    queued = QueueSeen(workloads=(workload,), looked_up=frozenset({job.uid}))
    seen = Observation(experiment=OPEN, jobs=(job,)).put(queued)
    found = required_changes(a_sweep(Phase.RUNNING, state, submitted=True), seen, NOW).patch
    assert [each.body["spec"] for each in found if each.ref.kind == "Workload"] == [
        {"priority": 9},
        {"active": False},
    ]
