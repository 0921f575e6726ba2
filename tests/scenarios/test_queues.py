"""A sweep whose trials wait in Kueue's queues: preemption, changes of its place, and what people see.

Kueue is that of the local world, which answers as recorded from 0.14.8.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from bot.sweep.decisions.parent_message import summary
from bot.sweep.features.queue.decide import QueueState
from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL
from tests.bot.factories import ADMIN, OWNER, REQUEST, STRANGER
from tests.scenarios.queued_sweep import QueuedSweep
from tests.scenarios.sweep_in_memory import SWEEP


@pytest.fixture
async def busy(redis):
    """Two trials run, and no quota is left."""
    async with QueuedSweep(redis).started() as simulation:
        await simulation.until(Phase.RUNNING)
        await simulation.rounds(2)
        yield simulation


async def test_trial_jobs_have_queue_and_priority_and_the_parent_says_so(busy):
    for job in busy.jobs():
        labels = job["metadata"]["labels"]
        assert (labels[QUEUE_LABEL], labels[PRIORITY_LABEL]) == ("research", "sweeps-normal")
    assert len(busy.jobs(suspended=False)) == 2
    assert busy.last.steps["submitted"] == "✓ Submitted, queue `research`, priority normal"


async def test_submitted_step_names_a_priority_that_was_changed_before(redis):
    async with QueuedSweep(redis).started() as simulation:
        while not (await simulation.record()).plan:
            await simulation.rounds(1)
        assert "submitted" not in simulation.last.steps
        await simulation.asks(Action.RAISE, ADMIN)
        await simulation.until(Phase.RUNNING)
        assert simulation.last.steps["submitted"] == "✓ Submitted, queue `research`, priority high"


@pytest.mark.features("interruptions")
async def test_preempted_trial_is_no_failure_and_runs_again(busy):
    busy.job("urgent-report")
    await busy.rounds(3)
    [preempted] = busy.jobs(suspended=True)
    name = preempted["metadata"]["name"]
    [told] = busy.said("stopped running")
    assert told.startswith(
        f":hourglass_flowing_sand: Trial `{name}` stopped running: Kueue preempted it for urgent-report in "
        "namespace sweeps, due to prioritization in the ClusterQueue. This isn't a failure: it starts again "
        "once its queue has quota"
    )
    progress = (await busy.record()).progress
    assert (progress.running, progress.waiting, progress.failed) == (1, 1, 0)
    await busy.rounds(3)
    assert len(busy.said("stopped running")) == 1
    busy.later(minutes=12)
    busy.kubernetes.delete("Job", "sweeps", "urgent-report")
    await busy.rounds(8)
    assert busy.said("Running again") == [f":runner: Running again, after 12 min: trial `{name}`."]
    busy.scenario["endless"] = False
    ended = await busy.until(Phase.SUCCEEDED)
    assert (ended.progress.succeeded, ended.progress.failed, ended.progress.killed) == (3, 0, 0)
    assert ended.progress.best.value == 0.1


@pytest.mark.features("interruptions", "nodes")
async def test_trial_on_several_nodes_is_admitted_and_preempted_as_one(redis):
    several = {"request": replace(REQUEST, gpus=2, nodes=3, parallel=1)}
    async with QueuedSweep(redis, gpus=6, sweep=several).started() as simulation:
        await simulation.until(Phase.RUNNING)
        [admitted] = simulation.jobs(suspended=False)
        assert admitted["status"]["active"] == 3
        simulation.job("urgent-report", gpus=2)
        await simulation.rounds(3)
        [preempted] = simulation.jobs(suspended=True)
        assert preempted["metadata"]["uid"] == admitted["metadata"]["uid"]
        assert "active" not in preempted["status"]
        [told] = simulation.said("stopped running")
        assert "Kueue preempted it for urgent-report" in told
        progress = (await simulation.record()).progress
        assert (progress.running, progress.waiting, progress.failed) == (0, 1, 0)


@pytest.mark.features("interruptions")
async def test_evicted_pod_is_no_failure_and_its_trial_runs_again(busy):
    pod = next(p for p in busy.kubernetes.list("Pod") if p["status"]["phase"] == "Running")
    why = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    condition = {"type": "DisruptionTarget", "status": "True", **why}
    evicted = pod["status"] | {"conditions": [condition]}
    busy.kubernetes.delete("Pod", "sweeps", pod["metadata"]["name"])
    busy.kubernetes.set_status(pod, evicted | {"phase": "Failed"})
    await busy.rounds(7)
    [told] = busy.said("stopped running")
    assert "it was evicted, as when a node is drained. This isn't a failure" in told
    assert "once a node has room" in told
    assert busy.said("Running again")
    assert (await busy.record()).progress.failed == 0


async def test_raise_changes_all_trials_without_preempting_the_sweeps_own(redis):
    async with QueuedSweep(redis, gpus=1).started() as simulation:
        await simulation.until(Phase.RUNNING)
        await simulation.asks(Action.RAISE, ADMIN)
        labels = {j["spec"]["suspend"]: j["metadata"]["labels"][PRIORITY_LABEL] for j in simulation.jobs()}
        assert labels == {False: "sweeps-normal", True: "sweeps-high"}
        assert {w["spec"]["priority"] for w in simulation.kubernetes.list("Workload")} == {1000}
        assert simulation.said("changed this sweep to priority high.")
        assert not simulation.said("stopped running")
        await simulation.asks(Action.LOWER)
        await simulation.rounds(2)
        assert {w["spec"]["priority"] for w in simulation.kubernetes.list("Workload")} == {100}
        await simulation.asks(Action.RAISE, ADMIN)
        simulation.scenario["endless"] = False
        ended = await simulation.until(Phase.SUCCEEDED)
        assert (ended.progress.succeeded, ended.progress.failed) == (3, 0)
        assert {j["metadata"]["labels"][PRIORITY_LABEL] for j in simulation.jobs()} > {"sweeps-high"}


@pytest.mark.parametrize("before", [(), (Action.HOLD, Action.UNHOLD)])
async def test_move_puts_waiting_trials_into_the_other_queue(redis, before):
    async with QueuedSweep(redis, gpus=1).started() as simulation:
        await simulation.until(Phase.RUNNING)
        for action in before:  # which evicts the waiting Workloads
            await simulation.asks(action)
            await simulation.rounds(2)
        await simulation.asks(Action.MOVE, ADMIN, queue="urgent")
        await simulation.rounds(2)
        queues = {j["spec"]["suspend"]: j["metadata"]["labels"][QUEUE_LABEL] for j in simulation.jobs()}
        assert queues == {False: "research", True: "urgent"}
        assert {w["spec"]["queueName"] for w in simulation.kubernetes.list("Workload")} == {
            "research",
            "urgent",
        }
        assert simulation.said("changed this sweep to queue urgent")


async def test_hold_keeps_waiting_trials_out_until_release(redis):
    async with QueuedSweep(redis, gpus=1).started() as simulation:
        await simulation.until(Phase.RUNNING)
        await simulation.asks(Action.HOLD)
        await simulation.rounds(2)
        assert len(simulation.jobs(suspended=False)) == 1, "the running trial continues"
        simulation.scenario["endless"] = False
        await simulation.rounds(8)
        assert simulation.jobs(suspended=False)[0]["status"].get("succeeded") == 1
        assert {w["spec"]["active"] for w in simulation.kubernetes.list("Workload")} == {True, False}
        held = await simulation.record()
        assert (held.phase, held.progress.running, held.progress.succeeded) == (Phase.RUNNING, 0, 1)
        simulation.later(minutes=1)  # Slack takes another edit
        await simulation.round()
        assert "held the waiting trials. Release them" in str(simulation.slack.parents[-1].blocks)
        await simulation.asks(Action.UNHOLD)
        ended = await simulation.until(Phase.SUCCEEDED)
        assert (ended.progress.succeeded, ended.of(QueueState).parked) == (3, ())


async def test_held_sweep_without_changes_costs_no_request_for_workloads(redis):
    async with QueuedSweep(redis, gpus=1).started() as simulation:
        await simulation.until(Phase.RUNNING)
        await simulation.asks(Action.HOLD)
        await simulation.rounds(4)
        reads, list_ = [], simulation.cluster.list

        async def counted(kind, *args, labels="", **kwargs):
            reads.append(f"{kind} {labels}")
            return await list_(kind, *args, labels=labels, **kwargs)

        simulation.cluster.list = counted
        await simulation.rounds(3)
        assert not [each for each in reads if " in (" in each], "the diagnosis of first trials has its own"


@pytest.mark.parametrize(
    ("action", "user", "queue", "words"),
    [
        (Action.RAISE, OWNER, "", "Priority high is for admins."),
        (Action.RAISE, STRANGER, "", "Only <@UOWNER> (owner) or an admin can raise the priority of"),
        (Action.MOVE, OWNER, "urgent", "Queue `urgent` is for people listed in the configuration and admins"),
        (Action.MOVE, OWNER, "research", "is already in queue `research`."),
        (Action.MOVE, OWNER, "nope", "Queue `nope` isn't configured."),
        (Action.UNHOLD, OWNER, "", "isn't held in its queue."),
    ],
)
async def test_queue_command_without_permission_or_effect_is_denied(busy, action, user, queue, words):
    before = [job["metadata"]["labels"] for job in busy.jobs()]
    await busy.asks(action, user, queue)
    assert words in busy.slack.ephemeral_messages[-1][1]
    assert [job["metadata"]["labels"] for job in busy.jobs()] == before


@pytest.mark.features("pause")
async def test_raise_while_paused_holds_for_the_trials_after_it(busy):
    await busy.asks(Action.PAUSE_NOW)
    await busy.until(Phase.PAUSED)
    await busy.asks(Action.RAISE, ADMIN)
    assert (await busy.record()).plan.priority == "high"
    await busy.asks(Action.RESUME)
    await busy.rounds(6)
    labels = {j["metadata"]["labels"][PRIORITY_LABEL] for j in busy.jobs(suspended=True)}
    assert labels <= {"sweeps-high"}


async def test_lower_twice_reaches_the_lowest(busy):
    await busy.asks(Action.LOWER)
    assert (await busy.record()).plan.priority == "low"
    await busy.asks(Action.LOWER)
    assert "already has the lowest configured priority: low." in busy.slack.ephemeral_messages[-1][1]


async def test_queue_shows_the_order_and_who_waits_for_what(redis):
    async with QueuedSweep(redis, gpus=1).started() as simulation:
        await simulation.until(Phase.RUNNING)
        simulation.job("big-report", gpus=8)
        await simulation.rounds(2)
        text = await simulation.queue_text()
        assert text.splitlines() == [
            "*Queue `research`* in `sweeps`: 1 running (1 GPU), 2 waiting",
            "1. `big-report`, 8 GPUs, priority high: can never start: the quota is 1 GPU in a100",
            f"2. `{SWEEP}`, ada, 1 trial × 1 GPU, priority normal: needs 1 more GPU in a100",
            "*Queue `urgent`* in `sweeps`: 0 running (0 GPUs), 0 waiting",
        ]
        await simulation.asks(Action.HOLD)
        await simulation.rounds(2)
        assert f"Held: `{SWEEP}`, ada, 1 trial × 1 GPU, priority normal" in await simulation.queue_text()


async def test_queue_keeps_no_finished_workloads_in_memory(busy, monkeypatch):
    """Kueue keeps them for days: twenty thousand would take half a gigabyte."""
    listed, read = [], busy.cluster.list

    async def spy(kind, namespace, **options):
        found = await read(kind, namespace, **options)
        listed.extend(w["metadata"]["name"] for w in found if kind == "Workload")
        return found

    monkeypatch.setattr(busy.cluster, "list", spy)
    old, *_ = busy.kubernetes.list("Workload")
    finished = {"type": "Finished", "status": "True", "reason": "JobFinished", "message": ""}
    busy.kubernetes.set_status(old, {**old["status"], "conditions": [finished]})
    await busy.queue_text()
    assert listed
    assert old["metadata"]["name"] not in listed


async def test_queue_counts_what_other_queues_have_ahead(redis):
    """The visibility API has places of the ClusterQueue, of which a LocalQueue's list shows only a part."""
    async with QueuedSweep(redis, gpus=1).started() as simulation:
        await simulation.until(Phase.RUNNING)
        for name in ("report-1", "report-2"):
            simulation.job(name, gpus=8, queue="urgent")
        await simulation.rounds(2)
        research, mine, urgent, *others = (await simulation.queue_text()).splitlines()
        assert (research, urgent) == (
            "*Queue `research`* in `sweeps`: 1 running (1 GPU), 1 waiting",
            "*Queue `urgent`* in `sweeps`: 0 running (0 GPUs), 2 waiting",
        )
        assert mine == (
            f"1. `{SWEEP}`, ada, 1 trial × 1 GPU, priority normal (place 3 in ClusterQueue `lab`, "
            "behind 2 of other queues): needs 1 more GPU in a100"
        )
        assert [line[:14] for line in others] == ["1. `report-1`,", "2. `report-2`,"]


async def test_running_sweep_says_why_its_other_trials_wait(busy):
    busy.job("urgent-report")
    await busy.rounds(3)
    needs = "Waiting trials need quota in queue `research` (`/sweep queue` shows their place)."
    assert needs in summary(await busy.record())
    await busy.asks(Action.HOLD)
    assert needs not in summary(await busy.record())


@pytest.mark.features("health")
async def test_waiting_first_trial_reports_what_is_missing_and_its_place(redis):
    async with QueuedSweep(redis, gpus=1).started() as simulation:
        simulation.job("report")
        await simulation.until(Phase.PENDING)
        await simulation.rounds(3)
        later = datetime.now(UTC) + timedelta(hours=1)  # the cluster has the machine's time
        simulation.clients = replace(simulation.clients, now=lambda: later)
        await simulation.rounds(2)
        [told] = simulation.said("Queued by Kueue")
        assert "Queued by Kueue: needs 1 more GPU in a100; " in told
        assert "next in its queue." in told or "1 ahead of it in its queue." in told  # two of one second


async def test_cancelled_sweep_whose_trial_never_got_a_node_has_no_stopped_trial(redis):
    async with QueuedSweep(redis, gpus=0).started() as simulation:
        while not simulation.jobs():
            await simulation.round()
        await simulation.asks(Action.CANCEL)
        ended = await simulation.until(Phase.CANCELLED)
        reasons = {one["status"]["conditions"][0]["reason"] for one in simulation.kubernetes.list("Trial")}
        assert reasons == {"SweepbotNotStarted"}
        assert (ended.progress.killed, ended.progress.finished) == (0, 0)
        simulation.later(minutes=1)  # Slack takes another edit
        await simulation.round()
        assert "0 of 3 trials" in str(simulation.slack.parents[-1].blocks)


async def test_launch_without_permission_is_refused_before_anything_starts(redis):
    request = replace(REQUEST, priority="high")
    async with QueuedSweep(redis, sweep={"request": request}).started() as simulation:
        await simulation.until(Phase.REFUSED)
        assert "Priority high is for admins." in simulation.slack.ephemeral_messages[-1][1]
        assert simulation.jobs() == []
