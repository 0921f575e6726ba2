"""A build Job without a pod: a quota, a queue, an unavailable webhook. Only events show the cause."""

import html
from datetime import UTC, datetime, timedelta

import pytest

from bot.core.record import Phase
from bot.platform.slack.mrkdwn import plain
from bot.sweep.decisions.parent_message import summary
from bot.sweep.sweeps.observe_builds import EARLY, POLL_EARLY, POLL_LATE, observe_builds
from k8s.api.cache import CacheReader
from k8s.katib.training import INJECTION_LABEL
from k8s.objects import timestamp
from local import kueue
from local.kubernetes.apiserver.kinds import refusal
from tests.bot.sweep.features.health import real_messages
from tests.scenarios.failing_trials import FailingTrials

EXPLAINED = {
    "memory": (
        {"hard": {"requests.memory": "1Gi"}},
        "namespace's quota `team`: requests.memory (2Gi requested, 0 of 1Gi used). *Fix:* Ask an admin",
        "exceeded quota: team, requested: requests.memory=2Gi, used: requests.memory=0",
    ),
    "limits of CPU": (
        {"hard": {"limits.cpu": "8"}},
        "Quota `team` requires `limits.cpu` on every pod, and builds set none.",
        "failed quota: team: must specify limits.cpu for: kaniko",
    ),
}


def builds(redis, **scenario):
    simulation = FailingTrials(redis, lambda *_: None, **scenario)
    simulation.scenario["image"] = False
    return simulation


async def waits(simulation):
    """The thread's only message about it; the record has it as long as it lasts."""
    [reported] = [text for text in simulation.slack.posted if "Build not started" in text]
    record = await simulation.record()
    assert record.phase is Phase.BUILDING
    assert f":warning: {plain(record.building.trouble)}" in summary(record)
    return reported


@pytest.mark.parametrize("case", EXPLAINED)
async def test_quota_without_room_for_a_build_is_reported_and_the_build_continues_when_raised(redis, case):
    spec, expected, quota_message = EXPLAINED[case]
    async with builds(redis).started() as simulation:
        meta = {"name": "team", "namespace": "sweeps"}
        simulation.kubernetes.create(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec}
        )
        await simulation.rounds(6)
        reported = await waits(simulation)
        assert expected in reported
        assert quota_message in reported
        simulation.kubernetes.delete("ResourceQuota", "sweeps", "team")
        await trained(simulation)


async def trained(simulation):
    """The Job controller tries again by itself; here without its pause."""
    for job in simulation.kubernetes.list("Job", "sweeps"):
        simulation.controllers._sync("sweeps", job["metadata"]["name"])
    await simulation.round()
    [pod] = simulation.kubernetes.list("Pod", "sweeps")
    simulation.runs(pod)
    await simulation.rounds(2)
    assert (await simulation.record()).building.trouble == ""
    assert simulation.slack.posted.count(":package: The build has started.") == 1
    simulation.controllers._sync = lambda *_: None  # the Job's own status follows later
    simulation.kubernetes.set_status(pod, {"phase": "Succeeded"})
    await simulation.round()
    assert len([text for text in simulation.slack.posted if "Build not started" in text]) == 1


async def test_pod_security_that_rejects_a_build_is_reported(redis):
    def reject(pod):
        raise refusal(403, real_messages.POD_SECURITY)

    simulation = builds(redis)
    simulation.kubernetes.admission("Pod", reject)
    async with simulation.started():
        await simulation.rounds(6)
        assert "the build's pod: the namespace's Pod Security level `restricted:latest`" in await waits(
            simulation
        )


async def test_unavailable_katib_webhook_is_reported_for_builds(redis):
    async with builds(redis).started() as simulation:
        simulation.katib.away = True
        await simulation.rounds(6)
        reported = await waits(simulation)
        assert "The webhook `mutator.pod.katib.kubeflow.org` isn't responding" in reported
        assert f"{INJECTION_LABEL}- && " in html.unescape(reported)
        assert "connection refused" in reported
        simulation.katib.away = False
        await trained(simulation)


async def test_unavailable_katib_webhook_is_reported_for_trials(redis):
    simulation = FailingTrials(redis, lambda *_: None)

    def goes(experiment):
        """As soon as the experiment is accepted."""
        simulation.katib.away = True
        return experiment

    simulation.kubernetes.admission("Experiment", goes)
    async with simulation.started():
        await simulation.rounds(8)
        assert "The webhook `mutator.pod.katib.kubeflow.org` isn't responding" in await simulation.message()


def suspend(job):
    return {**job, "spec": {**job["spec"], "suspend": True}}


@pytest.mark.parametrize(
    ("kueue_message", "due", "expected"),
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
async def test_build_held_by_a_queue_is_reported(redis, kueue_message, due, expected):
    simulation = builds(redis)
    simulation.kubernetes.admission("Job", suspend)
    simulation.cluster.kueue = kueue_message
    async with simulation.started():
        await simulation.rounds(6)
        if due:
            assert (await simulation.record()).building.trouble == ""
            await simulation.after(due)
        reported = await waits(simulation)
        assert expected in reported
        assert (kueue_message or "") in reported


async def test_build_in_a_queue_without_cpu_continues_when_it_has_cpu(redis):
    """Kueue itself, with a LocalQueue that takes every Job of the namespace."""
    simulation = builds(redis)
    kueue.install(simulation.kubernetes)
    here = kueue.Kueue(simulation.kubernetes)
    queue(simulation, "ClusterQueue", "gpus", {"resourceGroups": [covering("nvidia.com/gpu")]})
    here.start()
    try:
        async with simulation.started():
            queue(simulation, "LocalQueue", "default", {"clusterQueue": "gpus"})
            await simulation.rounds(6)
            reported = await waits(simulation)
            assert "in its queue `default`, which has no quota for cpu" in reported
            assert "docs/builds.md" in reported
            covered = covering("cpu", "memory", "ephemeral-storage")
            simulation.kubernetes.patch("ClusterQueue", "", "gpus", {"spec": {"resourceGroups": [covered]}})
            await simulation.rounds(2)
            [pod] = simulation.kubernetes.list("Pod", "sweeps")
            simulation.runs(pod)
            await simulation.rounds(2)
            assert (await simulation.record()).building.trouble == ""
    finally:
        await here.close()


def covering(*resources):
    quotas = [{"name": name, "nominalQuota": "100Gi"} for name in resources]
    return {"coveredResources": list(resources), "flavors": [{"name": "any", "resources": quotas}]}


def queue(simulation, kind, name, spec):
    meta = {"name": name} | ({"namespace": "sweeps"} if kind == "LocalQueue" else {})
    simulation.kubernetes.create(
        {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": meta, "spec": spec}
    )


async def test_missing_registry_secret_is_reported(redis):
    async with builds(redis).started() as simulation:
        await simulation.rounds(4)
        [pod] = simulation.kubernetes.list("Pod", "sweeps")
        simulation.waits(pod, "ContainerCreating")
        simulation.event(pod, "FailedMount", real_messages.NO_SECRET)
        await simulation.rounds(2)
        assert "The pod can't start: secret `compcrdwebhook-secret` doesn't exist." in await waits(simulation)


async def test_waiting_build_is_diagnosed_often_and_then_rarely(redis):
    async def observe_again_in(simulation):
        record = await simulation.record()
        reader = CacheReader(simulation.clients.caches, simulation.clients.cluster)
        return (await observe_builds(record, record.plan, simulation.clients, reader)).observe_again_in

    simulation = builds(redis)
    simulation.kubernetes.admission("Job", suspend)
    async with simulation.started():
        await simulation.rounds(4)
        assert await observe_again_in(simulation) == POLL_EARLY
        simulation.ahead += 2 * EARLY
        assert await observe_again_in(simulation) == POLL_LATE


async def test_build_that_starts_in_time_is_not_diagnosed(redis):
    async with builds(redis).started() as simulation:
        await simulation.rounds(4)
        [pod] = simulation.kubernetes.list("Pod", "sweeps")
        simulation.runs(pod)
        await simulation.after(600)
        record = await simulation.record()
        assert not [key for key in record.sent_keys if key.startswith("build_waiting")]


async def test_time_of_a_build_is_without_its_wait_for_a_pod(redis):
    """A Job's startTime is that of its first attempt to create one."""
    async with builds(redis).started() as simulation:
        await simulation.rounds(4)
        [pod] = simulation.kubernetes.list("Pod", "sweeps")
        simulation.bind(pod)
        begin = datetime.now(UTC)
        at = {name: timestamp(begin + timedelta(seconds=s)) for name, s in (("start", 600), ("end", 904))}
        over = {"exitCode": 0, "reason": "Completed", "startedAt": at["start"], "finishedAt": at["end"]}
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at["start"]}
        states = simulation.states(pod, {"terminated": over})
        simulation.set_status(pod, phase="Succeeded", containerStatuses=states, conditions=[scheduled])
        [job] = simulation.kubernetes.list("Job", "sweeps")
        complete = {"type": "Complete", "status": "True", "lastTransitionTime": at["end"]}
        times = {"startTime": timestamp(begin), "completionTime": at["end"]}
        simulation.set_status(job, conditions=[complete], **times)
        record = await simulation.record()
        reader = CacheReader(simulation.clients.caches, simulation.clients.cluster)
        seen = await observe_builds(record, record.plan, simulation.clients, reader)
        assert [each.job.seconds for each in seen.builds] == [304]
