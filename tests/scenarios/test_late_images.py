"""A pull that fails at first: Katib's collector exits, and the training would run without results."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tensorboardX import SummaryWriter

from bot.core.record import Phase
from bot.sweep.features.health.state import HealthState
from bot.sweep.features.interruptions.state import InterruptionState
from k8s.objects import timestamp
from local.kubernetes.node.kubelet import Kubelet
from tests.bot.sweep.features.health import real_messages
from tests.scenarios.failing_trials import FailingTrials

REFUSED = real_messages.PULLS["image-pull"]
RESTARTED = (
    ":hourglass_flowing_sand: Trial `{trial}` and 1 more trial restarted. The image couldn't be pulled at "
    "first, and Katib's metrics collector gave up before the training started. Katib starts a new pod."
)
SHOWN = f"\n```\n{REFUSED.replace('&', '&amp;')}\n```"


def ago(seconds):
    return timestamp(datetime.now(UTC) - timedelta(seconds=seconds))


def without_collector(simulation, pod, main, since=20):
    """Its collector ended before the training had started."""
    over = {"exitCode": 1, "reason": "Error", "startedAt": ago(since), "finishedAt": ago(since)}
    states = simulation.states(pod, main)
    for each in states:
        if each["name"] == "metrics-collector":
            each["state"] = {"terminated": over}
    simulation.bind(pod)
    if not any("running" in each["state"] for each in pod["status"].get("containerStatuses", ())):
        simulation.set_status(
            pod, phase="Pending" if "waiting" in main else "Running", containerStatuses=states
        )


def waits(simulation, pod, since=20):
    without_collector(simulation, pod, {"waiting": {"reason": "ErrImagePull", "message": REFUSED}}, since)


def comes(simulation, pod):
    without_collector(simulation, pod, {"running": {"startedAt": ago(1)}})


def restarts(record):
    restarted = [*record.of(InterruptionState).restarted.values()]
    return sorted(restarted.count(trial) for trial in set(restarted))


def reported(simulation):
    return [text for text in simulation.slack.posted if "restarted." in text]


async def test_trial_with_a_late_image_gets_a_new_pod_and_recovers(redis):
    async with FailingTrials(redis, waits).started() as simulation:
        await simulation.rounds(8)
        assert restarts(await simulation.record()) == []
        first = {job["metadata"]["uid"] for job in simulation.kubernetes.list("Job", "sweeps")}
        simulation.happens = lambda simulation, pod: (
            comes(simulation, pod) if uid(pod) in first else simulation.runs(pod)
        )
        await simulation.rounds(8)
        record = await simulation.record()
        assert restarts(record) == [1, 1]  # two trials at a time
        assert not first & {job["metadata"]["uid"] for job in simulation.kubernetes.list("Job", "sweeps")}
        assert record.phase is Phase.RUNNING
        [reply] = reported(simulation)
        assert reply == RESTARTED.format(trial=reply.split("`")[1]) + SHOWN
        assert await simulation.message() is None, "no results were lost"


def uid(pod):
    return pod["metadata"]["ownerReferences"][0]["uid"]


async def test_trial_waiting_a_minute_for_its_image_is_restarted_once_and_again_when_it_arrives(redis):
    async with FailingTrials(
        redis, lambda simulation, pod: waits(simulation, pod, since=61)
    ).started() as simulation:
        await simulation.rounds(12)
        assert restarts(await simulation.record()) == [1, 1]
        [reply] = reported(simulation)
        assert reply == RESTARTED.format(trial=reply.split("`")[1]) + SHOWN
        simulation.happens = comes
        await simulation.rounds(12)
        assert restarts(await simulation.record()) == [2, 2]  # and no more, though the new ones are late, too
        assert (await simulation.record()).phase is Phase.PENDING
        await simulation.after(60)
        assert "the trial's results are lost" in await simulation.message()


@pytest.mark.parametrize("cause", ["image-missing", "image-login", "image-tls"])
async def test_trial_that_only_a_person_can_fix_is_not_restarted(redis, cause):
    state = {"waiting": {"reason": "ErrImagePull", "message": real_messages.PULLS[cause]}}
    happens = lambda simulation, pod: without_collector(simulation, pod, state, since=600)  # noqa: E731
    async with FailingTrials(redis, happens).started() as simulation:
        await simulation.rounds(8)
        assert restarts(await simulation.record()) == []


async def test_pod_that_ended_unobserved_is_explained(redis):
    def ends(simulation, pod):
        over = {"exitCode": 0, "reason": "Completed", "startedAt": ago(1), "finishedAt": ago(0)}
        without_collector(simulation, pod, {"terminated": over})
        simulation.event(pod, "Failed", f'Failed to pull image "x": {REFUSED}')
        simulation.set_status(
            simulation.kubernetes.get("Pod", "sweeps", pod["metadata"]["name"]), phase="Failed"
        )

    async with FailingTrials(redis, ends).started() as simulation:
        await simulation.rounds(12)
        reply = await simulation.message()
        assert "couldn't be pulled at first" in reply
        assert "connection refused" in reply
        assert restarts(await simulation.record()) == []
        assert "trial_restarted" not in {event.kind for event in (await simulation.record()).outbox}


class Real(FailingTrials):
    """With the local nodes and Katib's collector in place of scripted statuses."""

    async def _time_passes(self):
        await asyncio.sleep(0.1)


async def trains(_pod, _container, volumes, _log, _siblings):
    folder = volumes["metrics-volume"]
    with SummaryWriter(str(folder), write_to_disk=True) as writer:
        writer.add_scalar("loss", 0.5, 1)
    await asyncio.sleep(1)
    (folder / "7.pid").write_text("completed\n")
    return 0


async def test_good_trials_whose_collector_starts_too_late_run_again(redis, tmp_path):
    """Each at its first try, with `max_failed` 1; the collector of the last one is always too late."""
    simulation, tries = Real(redis, None), Counter()
    collectors = simulation.katib.collectors

    async def late(pod, *rest):
        name = pod["metadata"]["labels"]["katib.kubeflow.org/trial"]
        tries[name] += 1
        collectors.start_seconds = 1.5 if tries[name] == 1 or len(tries) == 3 else 0
        return await collectors.events(pod, *rest)

    builtins = {"sweepbot/digits": trains, "tfevent-metrics-collector": late}
    kubelet = Kubelet(simulation.kubernetes, {"n1": 1}, "127.0.0.1:1", builtins, tmp_path)
    kubelet.start()
    try:
        async with simulation.started():
            while not (await simulation.record()).phase.final:
                await simulation.round()
        record = simulation.last
        assert [*tries.values()] == [2, 2, 3]
        assert (record.phase, record.progress.succeeded, record.progress.failed) == (Phase.FAILED, 2, 1)
        why = "its training finished, but Katib's metrics collector wasn't ready or failed"
        assert sum(why in text for text in simulation.slack.posted) >= 3
    finally:
        await kubelet.close()


async def test_trial_on_a_node_survives_a_short_registry_outage(redis, tmp_path):
    simulation = Real(redis, None)
    builtins = dict(simulation.katib.builtins)
    kubelet = Kubelet(simulation.kubernetes, {"n1": 2}, "127.0.0.1:1", builtins, tmp_path, retry=600)
    kubelet.start()
    try:
        async with simulation.started():
            while not (await simulation.record()).of(HealthState).shown:
                await simulation.round()
            assert "can't pull the image" in simulation.last.of(HealthState).shown.text
            builtins["sweepbot/digits"] = trains  # what a new pod finds
            simulation.ahead += timedelta(seconds=70)
            while not (await simulation.record()).phase.final:
                await simulation.round()
        record = simulation.last
        assert (record.phase, record.progress.succeeded, record.progress.failed) == (Phase.SUCCEEDED, 3, 0)
        assert restarts(record) == [1, 1]
    finally:
        await kubelet.close()
