"""A build Job that gets no pod: a quota, a queue for GPUs, a webhook that is away. Only events say so."""

import pytest

from bot.core.events import EventKind
from bot.core.record import Phase
from bot.slack.mrkdwn import plain
from bot.sweeps.observe_builds import EARLY, POLL_EARLY, POLL_LATE, observe_builds
from bot.sweeps.parent_message import summary
from local import kueue
from tests.bot.health import real_messages
from tests.scenarios.failing_trials import FailingTrials

EXPLAINED = {
    "memory": (
        {"hard": {"requests.memory": "1Gi"}},
        "namespace's quota `team`: requests.memory (2Gi requested, 0 of 1Gi used). *Fix:* Ask an admin",
        "exceeded quota: team, requested: requests.memory=2Gi, used: requests.memory=0",
    ),
    "limits of CPU": (
        {"hard": {"limits.cpu": "8"}},
        "Quota `team` requires limits.cpu on every pod, and builds set none.",
        "failed quota: team: must specify limits.cpu for: kaniko",
    ),
}


def builds(redis, **story):
    ward = FailingTrials(redis, lambda *_: None, **story)
    ward.story["image"] = False
    return ward


async def waits(ward):
    """What the thread says of it, once; the record says it as long as it lasts."""
    [told] = [text for text in ward.slack.said if "Build not started" in text]
    record = await ward.record()
    assert record.phase is Phase.BUILDING
    assert f":warning: {plain(record.build_trouble)}" in summary(record)
    return told


@pytest.mark.parametrize("case", EXPLAINED)
async def test_quota_without_room_for_a_build_is_reported_and_the_build_continues_when_raised(redis, case):
    spec, expected, words_of_quota = EXPLAINED[case]
    async with builds(redis).started() as ward:
        meta = {"name": "team", "namespace": "sweeps"}
        ward.kubernetes.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec})
        await ward.rounds(6)
        told = await waits(ward)
        assert expected in told
        assert words_of_quota in told
        ward.kubernetes.delete("ResourceQuota", "sweeps", "team")
        await trained(ward)


async def trained(ward):
    """The Job controller tries again by itself; here without its pause."""
    for job in ward.kubernetes.list("Job", "sweeps"):
        ward.controllers._sync("sweeps", job["metadata"]["name"])
    await ward.round()
    [pod] = ward.kubernetes.list("Pod", "sweeps")
    ward.runs(pod)
    await ward.rounds(2)
    assert (await ward.record()).build_trouble == ""


async def test_unavailable_katib_webhook_is_reported_for_builds(redis):
    async with builds(redis).started() as ward:
        ward.katib.away = True
        await ward.rounds(6)
        told = await waits(ward)
        assert "The webhook `mutator.pod.katib.kubeflow.org` isn't responding" in told
        assert "rollout restart deployment katib-controller" in told
        assert "connection refused" in told
        ward.katib.away = False
        await trained(ward)


async def test_unavailable_katib_webhook_is_reported_for_trials(redis):
    ward = FailingTrials(redis, lambda *_: None)

    def goes(experiment):
        """As soon as the experiment is accepted."""
        ward.katib.away = True
        return experiment

    ward.kubernetes.admission("Experiment", goes)
    async with ward.started():
        await ward.rounds(8)
        assert "The webhook `mutator.pod.katib.kubeflow.org` isn't responding" in await ward.message()


def suspend(job):
    return {**job, "spec": {**job["spec"], "suspend": True}}


@pytest.mark.parametrize(
    ("said", "due", "expected"),
    [
        (
            real_messages.NO_RESOURCE,
            0,
            "which has no quota for cpu. *Fix:* Ask an admin to give",
        ),
        (
            real_messages.NO_QUOTA,
            61,
            "Kueue holds the build in a queue. *Fix:* Ask an admin to give builds their own namespace",
        ),
        (None, 61, "The build Job is suspended, and Kueue gives no reason."),
    ],
)
async def test_build_held_by_a_queue_is_reported(redis, said, due, expected):
    ward = builds(redis)
    ward.kubernetes.admission("Job", suspend)
    ward.cluster.kueue = said
    async with ward.started():
        await ward.rounds(6)
        if due:
            assert (await ward.record()).build_trouble == ""
            await ward.after(due)
        told = await waits(ward)
        assert expected in told
        assert (said or "") in told


async def test_build_in_a_queue_without_cpu_continues_when_it_has_cpu(redis):
    """Kueue itself, with a LocalQueue that takes every Job of the namespace."""
    ward = builds(redis)
    kueue.install(ward.kubernetes)
    here = kueue.Kueue(ward.kubernetes)
    queue(ward, "ClusterQueue", "gpus", {"resourceGroups": [covering("nvidia.com/gpu")]})
    here.start()
    try:
        async with ward.started():
            queue(ward, "LocalQueue", "default", {"clusterQueue": "gpus"})
            await ward.rounds(6)
            told = await waits(ward)
            assert "in its queue `default`, which has no quota for cpu" in told
            assert "docs/builds.md" in told
            covered = covering("cpu", "memory", "ephemeral-storage")
            ward.kubernetes.patch("ClusterQueue", "", "gpus", {"spec": {"resourceGroups": [covered]}})
            await ward.rounds(2)
            [pod] = ward.kubernetes.list("Pod", "sweeps")
            ward.runs(pod)
            await ward.rounds(2)
            assert (await ward.record()).build_trouble == ""
    finally:
        await here.close()


def covering(*resources):
    quotas = [{"name": name, "nominalQuota": "100Gi"} for name in resources]
    return {"coveredResources": list(resources), "flavors": [{"name": "any", "resources": quotas}]}


def queue(ward, kind, name, spec):
    meta = {"name": name} | ({"namespace": "sweeps"} if kind == "LocalQueue" else {})
    ward.kubernetes.create(
        {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": meta, "spec": spec}
    )


async def test_missing_registry_secret_is_reported(redis):
    async with builds(redis).started() as ward:
        await ward.rounds(4)
        [pod] = ward.kubernetes.list("Pod", "sweeps")
        ward.waits(pod, "ContainerCreating")
        ward.event(pod, "FailedMount", real_messages.NO_SECRET)
        await ward.rounds(2)
        assert "The pod can't start: secret `compcrdwebhook-secret` doesn't exist." in await waits(ward)


async def test_waiting_build_is_diagnosed_often_and_then_rarely(redis):
    async def observe_again_in(ward):
        record = await ward.record()
        return (await observe_builds(record, record.plan, ward.clients)).observe_again_in

    ward = builds(redis)
    ward.kubernetes.admission("Job", suspend)
    async with ward.started():
        await ward.rounds(4)
        assert await observe_again_in(ward) == POLL_EARLY
        ward.ahead += 2 * EARLY
        assert await observe_again_in(ward) == POLL_LATE


async def test_build_that_starts_in_time_is_not_diagnosed(redis):
    async with builds(redis).started() as ward:
        await ward.rounds(4)
        [pod] = ward.kubernetes.list("Pod", "sweeps")
        ward.runs(pod)
        await ward.after(600)
        record = await ward.record()
        assert not [key for key in record.sent_keys if key.startswith(EventKind.BUILD_WAITING)]
