"""A pull that fails at first: Katib's collector gives up, and the training would run for nothing."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tensorboardX import SummaryWriter

from bot.core.events import EventKind
from bot.core.record import Phase
from k8s.objects import timestamp
from local.kubernetes.kubelet import Kubelet
from tests.bot.health import real_messages
from tests.scenarios.failing_trials import FailingTrials

REFUSED = real_messages.PULLS["image-pull"]
RESTARTED = (
    ":hourglass_flowing_sand: Trial `{trial}` and 1 more trial restarted. The image couldn't be pulled at "
    "first, and Katib's metrics collector gave up before the training started. Katib starts a new pod."
)


def ago(seconds):
    return timestamp(datetime.now(UTC) - timedelta(seconds=seconds))


def without_collector(ward, pod, main, since=20):
    """Its collector ended before the training had started."""
    over = {"exitCode": 1, "reason": "Error", "startedAt": ago(since), "finishedAt": ago(since)}
    states = ward.states(pod, main)
    for each in states:
        if each["name"] == "metrics-collector":
            each["state"] = {"terminated": over}
    ward.bind(pod)
    if not any("running" in each["state"] for each in pod["status"].get("containerStatuses", ())):
        ward.set_status(pod, phase="Pending" if "waiting" in main else "Running", containerStatuses=states)


def waits(ward, pod, since=20):
    without_collector(ward, pod, {"waiting": {"reason": "ErrImagePull", "message": REFUSED}}, since)


def comes(ward, pod):
    without_collector(ward, pod, {"running": {"startedAt": ago(1)}})


def restarts(record):
    return sorted(list(record.restarted.values()).count(trial) for trial in set(record.restarted.values()))


def told(ward):
    return [text for text in ward.slack.said if "restarted." in text]


async def test_trial_with_a_late_image_gets_a_new_pod_and_recovers(redis):
    async with FailingTrials(redis, waits).started() as ward:
        await ward.rounds(8)
        assert restarts(await ward.record()) == []
        first = {job["metadata"]["uid"] for job in ward.kubernetes.list("Job", "sweeps")}
        ward.happens = lambda ward, pod: comes(ward, pod) if uid(pod) in first else ward.runs(pod)
        await ward.rounds(8)
        record = await ward.record()
        assert restarts(record) == [1, 1]  # two trials at a time
        assert not first & {job["metadata"]["uid"] for job in ward.kubernetes.list("Job", "sweeps")}
        assert record.phase is Phase.RUNNING
        [said] = told(ward)
        assert said == RESTARTED.format(trial=said.split("`")[1])
        assert (await ward.message()).startswith(":white_check_mark: Recovered")


def uid(pod):
    return pod["metadata"]["ownerReferences"][0]["uid"]


async def test_trial_waiting_a_minute_for_its_image_is_restarted_once_and_again_when_it_arrives(redis):
    async with FailingTrials(redis, lambda ward, pod: waits(ward, pod, since=61)).started() as ward:
        await ward.rounds(12)
        assert restarts(await ward.record()) == [1, 1]
        [said] = told(ward)
        shown = REFUSED.replace("&", "&amp;")
        assert said == RESTARTED.format(trial=said.split("`")[1]) + f"\n```\n{shown}\n```"
        ward.happens = comes
        await ward.rounds(12)
        assert restarts(await ward.record()) == [2, 2]  # and no more, though the new ones come late as well
        assert (await ward.record()).phase is Phase.PENDING
        assert "the trial's results are lost" in await ward.message()


@pytest.mark.parametrize("cause", ["image-missing", "image-login", "image-tls"])
async def test_trial_that_only_a_person_can_fix_is_not_restarted(redis, cause):
    state = {"waiting": {"reason": "ErrImagePull", "message": real_messages.PULLS[cause]}}
    happens = lambda ward, pod: without_collector(ward, pod, state, since=600)  # noqa: E731
    async with FailingTrials(redis, happens).started() as ward:
        await ward.rounds(8)
        assert restarts(await ward.record()) == []


async def test_pod_that_ended_unobserved_is_explained(redis):
    def ends(ward, pod):
        over = {"exitCode": 0, "reason": "Completed", "startedAt": ago(1), "finishedAt": ago(0)}
        without_collector(ward, pod, {"terminated": over})
        ward.event(pod, "Failed", f'Failed to pull image "x": {REFUSED}')
        ward.set_status(ward.kubernetes.get("Pod", "sweeps", pod["metadata"]["name"]), phase="Failed")

    async with FailingTrials(redis, ends).started() as ward:
        await ward.rounds(12)
        said = await ward.message()
        assert "couldn't be pulled at first" in said
        assert "connection refused" in said
        assert restarts(await ward.record()) == []
        assert EventKind.TRIAL_RESTARTED not in {event.kind for event in (await ward.record()).outbox}


class Real(FailingTrials):
    """With the local nodes and Katib's collector in place of a story's words."""

    async def _time_passes(self):
        await asyncio.sleep(0.1)


async def trains(_pod, _container, volumes, _log, _siblings):
    folder = volumes["metrics-volume"]
    with SummaryWriter(str(folder), write_to_disk=True) as writer:
        writer.add_scalar("loss", 0.5, 1)
    await asyncio.sleep(1)
    (folder / "7.pid").write_text("completed\n")
    return 0


async def test_trial_on_a_node_survives_a_short_registry_outage(redis, tmp_path):
    ward = Real(redis, None)
    builtins = dict(ward.katib.builtins)
    kubelet = Kubelet(ward.kubernetes, {"n1": 2}, "127.0.0.1:1", builtins, tmp_path, retry=600)
    kubelet.start()
    try:
        async with ward.started():
            while not (await ward.record()).health:
                await ward.round()
            assert "can't pull the image" in (await ward.record()).health.text
            builtins["sweepbot/digits"] = trains  # what a new pod finds
            ward.ahead += timedelta(seconds=70)
            while not (await ward.record()).phase.final:
                await ward.round()
        record = ward.last
        assert (record.phase, record.progress.succeeded, record.progress.failed) == (Phase.SUCCEEDED, 3, 0)
        assert restarts(record) == [1, 1]
    finally:
        await kubelet.close()
