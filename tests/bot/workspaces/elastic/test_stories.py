"""Elastic replicas in a cluster in memory: up, down at the pod's watch event, a dead bot, someone else.

Time is simulated. `settle` lets happen what needs no timer, so what follows it was caused by an event.
"""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from bot.workspaces.elastic import reporter, resume, scaler
from bot.workspaces.elastic.records import CONFIGMAP_NAME, ElasticRecord, ElasticRecords, Reason
from bot.workspaces.elastic.reporter import control
from k8s.api.errors import ApiError, UnreachableError
from k8s.objects import Ref, config_map
from tests.bot.factories import NOW, SETTINGS
from tests.bot.workspaces.elastic.factories import SERVING, deployment_of, node_of
from tests.bot.workspaces.elastic.world import ElasticWorld
from tests.releases.test_releases import clients_with

COST = "controller.kubernetes.io/pod-deletion-cost"
PATIENT = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "patient"}}
PATIENT |= {"value": 1000, "preemptionPolicy": "Never"}


async def grown(world, replicas=4):
    await world.passes(30)
    assert (world.replicas, world.running()) == (replicas, ["gpu-1"] * replicas)
    world.cluster.scaled.clear()


async def test_replicas_grow_one_by_one_into_free_gpus():
    async with ElasticWorld().started() as world, world.led():
        await world.passes(4.9)
        assert world.replicas == 0
        await world.passes(10)
        assert world.cluster.scaled == [1, 2, 3, 4]
        assert "4 of max 6 replicas run" in await world.report()


async def test_replicas_leave_the_reserve_free():
    async with ElasticWorld(reserve=1).started() as world, world.led():
        await grown(world, 3)
        world.start_pod()
        await world.settle()
        assert world.pod()["spec"]["nodeName"] == "gpu-1"  # at once, without preemption
        await world.look()
        assert world.replicas == 2
        assert "less was free than the reserve" in await world.report()


async def test_pod_that_preempts_lowers_the_replicas_at_its_watch_event():
    async with ElasticWorld().started() as world, world.led():
        await grown(world)
        world.start_pod(gpus=2, meta={"labels": {"sweepbot/sweep": "lr-otter-7"}})
        await world.settle()
        assert world.cluster.scaled == [2], "by the pod's events alone, and only once"
        assert world.running() == ["gpu-1"] * 2, "no substitutes wait"
        text = await world.report()
        assert "Lowered from 4 to 2" in text
        assert "GPUs given to `lr-otter-7`" in text
        world.end_pods()
        await world.settle()
        assert world.pod()["spec"]["nodeName"] == "gpu-1"
        await world.look()
        assert world.cluster.scaled == [2], "the victims weren't subtracted twice"


async def test_replicas_come_back_ten_minutes_after_a_step_down():
    async with ElasticWorld().started() as world, world.led():
        await grown(world)
        world.start_pod(gpus=2)
        await world.settle()
        world.end_pods()
        await world.passes(0.2)
        world.end_pod("otter")
        await world.passes(9.5)
        assert world.cluster.scaled == [2]
        await world.passes(2)
        assert world.cluster.scaled == [2, 3, 4]


async def test_pod_that_cannot_preempt_gets_the_gpus_of_one_node():
    nodes = [node_of("gpu-1", gpus=2), node_of("gpu-2", gpus=4)]
    async with ElasticWorld(*nodes).started() as world, world.led():
        await world.passes(30)
        assert world.running() == ["gpu-1"] * 2 + ["gpu-2"] * 4
        world.store.create(PATIENT)
        world.start_pod(gpus=3, priorityClassName="patient")
        await world.settle()
        assert world.replicas == 3
        assert world.running() == ["gpu-1"] * 2 + ["gpu-2"]
        marked = [p for p in world.store.list("Pod", SERVING) if COST in p["metadata"].get("annotations", {})]
        assert {pod["spec"]["nodeName"] for pod in marked} == {"gpu-2"}
        world.end_pods()
        await world.look()
        assert world.pod()["spec"].get("nodeName") == "gpu-2"
        assert world.replicas == 3


async def test_victim_that_is_gone_before_it_is_marked_stops_nothing(monkeypatch, caplog):
    async with ElasticWorld().started() as world, world.led():
        await grown(world)
        merge = world.cluster.merge

        async def gone(ref, patch, *, subresource=""):
            if ref.kind == "Pod":
                raise ApiError(404, "NotFound", "pods not found")
            return await merge(ref, patch, subresource=subresource)

        monkeypatch.setattr(world.cluster, "merge", gone)
        world.store.create(PATIENT)
        world.start_pod(priorityClassName="patient")
        await world.settle()
        assert world.replicas < 4
        assert "can't scale" not in caplog.text


async def test_replicas_without_gpus_follow_free_cpus():
    nodes = [node_of("cpu-1", gpus=0, cpu="16"), node_of("cpu-2", gpus=0, cpu="9", memory="2Gi")]
    made = deployment_of(gpus=0, cpu="4")
    async with ElasticWorld(*nodes, made=made, gpus=0, reserve=1).started() as world, world.led():
        world.start_pod("owl", gpus=0, cpu="5")  # on cpu-1, which has room for two then
        await world.passes(30)
        assert world.cluster.scaled == [1, 2, 3]
        assert world.running() == ["cpu-1", "cpu-1", "cpu-2"]
        text = await world.report()
        assert "3 of max 6 replicas run" in text
        assert "CPUs were free" in text
        assert "GPU" not in text.replace("sweepbot", "")
        world.start_pod("small", gpus=0, cpu="4")
        await world.settle()
        assert world.pod("small")["spec"]["nodeName"] == "cpu-2"  # at once: what was in reserve
        world.start_pod(gpus=0, cpu="8", meta={"labels": {"sweepbot/sweep": "lr-otter-7"}})
        await world.settle()
        assert world.running() == ["cpu-2"], "by the pod's events alone"
        assert "CPUs given to `lr-otter-7`" in await world.report()
        world.end_pods()
        await world.settle()
        assert world.pod()["spec"]["nodeName"] == "cpu-1"


async def test_scheduler_preempts_replicas_while_sweepbot_is_down():
    async with ElasticWorld().started() as world:
        async with world.led():
            await grown(world)
        world.start_pod(gpus=3)
        await world.settle()
        world.end_pods()
        await world.settle()
        assert world.pod()["spec"]["nodeName"] == "gpu-1"
        assert (world.replicas, world.running()) == (4, ["", "", "", "gpu-1"])
        async with world.led():  # the next leader tidies up
            assert world.replicas == 1
            assert world.running() == ["gpu-1"]


async def test_scaling_pauses_while_someone_else_changes_the_replicas():
    async with ElasticWorld().started() as world, world.led():
        await grown(world)
        world.scale(1)
        await world.settle()
        world.end_pods()
        await world.passes(30)
        assert (world.replicas, world.cluster.scaled) == (1, [])
        text = await world.report()
        assert "scaling is paused" in text
        assert "from 4 to 1" in text
        assert "kubectl -n serving scale deployment/llm --replicas=4" in text
        world.scale(4)
        await world.passes(0.5)
        assert "4 of max 6 replicas" in await world.report()


async def test_resume_scaling_continues_from_someone_elses_number():
    async with ElasticWorld().started() as world, world.led():
        await grown(world)
        world.scale(1)
        await world.settle()
        world.end_pods()
        await world.passes(1)
        store, [value] = world.clients.store, [each["value"] for each in await buttons(world)]
        assert value == "serving/llm 1"
        await store.add_request(*resume.request("serving/llm 2", "UADMIN"))  # below a message of before
        store.down = True
        await world.passes(1)
        assert "scaling is paused" in await world.report()
        store.down = False
        await store.add_request(*resume.request(value, "UADMIN"))
        await world.passes(0.5)
        assert "1 of max 6 replicas runs" in await world.report()
        assert await buttons(world) == []
        await world.passes(15)
        assert world.replicas == 4


async def buttons(world):
    await world.report()
    last = [each[-1] for each in world.slack.messages.values()][-1]
    return [each for block in last.blocks if block["type"] == "actions" for each in block["elements"]]


@pytest.mark.parametrize("before", [True, False])
async def test_leader_that_dies_at_any_write_is_replaced(before):
    write = 0
    while True:
        write += 1
        async with ElasticWorld(made=deployment_of(replicas=3), max=3).started() as world:
            world.cluster.dies_at = (write, before)
            await lead_until_death(world)
            if not world.cluster.dead:
                assert write > 5, "a leader writes more than that"
                return
            world.cluster.dies_at, world.cluster.dead = None, False
            async with world.led():
                await world.passes(0.5)
                if not world.pod():
                    world.start_pod(gpus=2)
                    await world.settle()
                text = await world.report()
            assert (world.replicas, world.running()) == (2, ["gpu-1", "gpu-1"])
            assert "Lowered from 3 to 2" in text
            assert len(world.slack.messages) <= 2  # the post that wasn't stored is repeated


async def lead_until_death(world):
    """Report the replicas that it finds, give the GPUs of one away, and report again."""
    with contextlib.suppress(UnreachableError):
        async with world.led():
            await world.passes(0.2)
            await world.reporter.report()
            world.start_pod(gpus=2)
            await world.settle()
            await world.reporter.report()


async def test_message_survives_a_new_leader_and_is_edited_only_when_it_changes():
    async with ElasticWorld().started() as world:
        async with world.led():
            await grown(world)
            await world.report()
        async with world.led():
            await world.look()
            await world.report()
        assert [len(each) for each in world.slack.messages.values()] == [1]
        [moved] = world.clients.config.elastic
        world.clients.config = replace(world.clients.config, elastic=(replace(moved, channel="C2"),))
        for _ in range(2):
            await world.look()
            await world.report()
        assert len(world.slack.messages) == 2, "the new channel has one, too"


async def test_deployment_removed_from_the_configuration_is_reported_and_keeps_its_replicas():
    async with ElasticWorld().started() as world, world.led():
        await grown(world)
        await world.report()
        world.clients.config = replace(world.clients.config, elastic=())
        await world.look()
        assert "isn't in `elastic:` anymore" in await world.report()
        assert world.replicas == 4


async def test_interrupted_watch_raises_nothing_and_is_shown_after_a_minute():
    async with ElasticWorld().started() as world, world.led():
        await world.passes(4)
        world.scaler._pods.complete = False
        await world.passes(0.5)
        assert "no current data" not in await world.report()
        await world.passes(10)
        assert world.replicas == 0
        assert "no current data" in await world.report()
        world.scaler._pods.complete = True
        await world.passes(4.9)
        assert world.replicas == 0
        await world.passes(0.5)
        assert world.replicas == 1


async def test_old_node_list_raises_nothing():
    async with ElasticWorld().started() as world, world.led():
        await world.passes(4)
        world.now += scaler.NODES_STALE
        await world.look()
        await world.look()
        assert world.replicas == 0


@pytest.mark.parametrize(
    ("deployment", "config", "text"),
    [
        (deployment_of(priorityClassName=""), {}, "has no `priorityClassName`"),
        (deployment_of(priorityClassName="none"), {}, "PriorityClass `none` doesn't exist"),
        (deployment_of(gpus=2), {}, "A replica requests 2 GPUs, but `gpus` in `elastic:` is 1"),
        (None, {"deployment": "asr"}, "Deployment `asr` doesn't exist in `serving`"),
    ],
)
async def test_deployment_that_is_not_ready_for_it_is_not_scaled(deployment, config, text):
    async with ElasticWorld(made=deployment, **config).started() as world, world.led():
        await world.passes(10)
        assert world.cluster.scaled == []
        assert text in await world.report()


async def test_two_deployments_share_the_free_gpus_without_taking_any_twice():
    async with ElasticWorld(node_of(gpus=3)).started() as world:
        world.both()
        async with world.led():
            await world.passes(30)
            assert sorted(world.cluster.scaled) == [1, 1, 2], "no step down was needed"


async def test_leader_that_another_one_overtook_looks_again_at_once(caplog):
    async with ElasticWorld().started() as world, world.led():
        await grown(world)
        annotated = {"metadata": {"annotations": {"by": "another leader"}}}
        world.store.patch("ConfigMap", SETTINGS.k8s_namespace, CONFIGMAP_NAME, annotated)
        [llm] = world.clients.config.elastic
        world.clients.config = replace(world.clients.config, elastic=(replace(llm, max=2),))
        await world.scaler.look()
        assert world.cluster.scaled == [], "its copy of the records is outdated"
        await world.settle()
        assert world.cluster.scaled == [2]
        assert "can't scale" not in caplog.text


async def test_deleted_records_are_created_again_and_scaling_continues():
    async with ElasticWorld().started() as world, world.led():
        await grown(world)
        world.store.delete("ConfigMap", SETTINGS.k8s_namespace, CONFIGMAP_NAME)
        [llm] = world.clients.config.elastic
        world.clients.config = replace(world.clients.config, elastic=(replace(llm, max=2),))
        await world.passes(1)
        assert world.cluster.scaled == [2]
        assert "2 of max 2 replicas" in await world.report()
        assert world.store.get("ConfigMap", SETTINGS.k8s_namespace, CONFIGMAP_NAME)


@pytest.mark.parametrize(
    ("entry", "logged"),
    [
        ('{"replicas": ', "entry serving.asr of ConfigMap sweepbot-elastic is damaged; delete it to start"),
        ('{"replicas": "many"}', "is damaged"),
        ('{"replicas": 1, "new": 1}', "was stored by a newer Sweepbot (unknown new)"),
    ],
)
async def test_entry_that_cannot_be_read_stops_its_deployment_alone(entry, logged, caplog):
    async with ElasticWorld(node_of(gpus=3)).started() as world:
        both = world.both()
        records = Ref("ConfigMap", SETTINGS.k8s_namespace, CONFIGMAP_NAME)
        world.store.create(config_map(records, {"serving.asr": entry}))
        async with world.led():
            await grown(world, 3)
            assert "3 of max 6 replicas" in await world.report()
            assert len(world.slack.messages) == 1
            assert caplog.text.count("can't scale serving/asr") == caplog.text.count(logged) == 1
            stored = world.store.get("ConfigMap", SETTINGS.k8s_namespace, CONFIGMAP_NAME)["data"]
            assert stored["serving.asr"] == entry
            deleted = {"data": {"serving.asr": None}}
            world.store.patch("ConfigMap", SETTINGS.k8s_namespace, CONFIGMAP_NAME, deleted)
            world.clients.config = replace(world.clients.config, elastic=(replace(both[0], max=1), both[1]))
            await world.look()
            world.end_pods()
            await world.passes(30)
            assert world.cluster.scaled == [1, 1, 2], "the first down, the second up"
            await world.reporter.report()
            assert len(world.slack.messages) == 2


async def test_channel_without_the_bot_does_not_stop_scaling():
    async with ElasticWorld().started() as world, world.led():
        world.slack.invited = False
        await grown(world)
        await world.reporter.report()
        assert world.slack.messages == {}
        world.slack.invited = True
        await world.passes(5)
        assert "4 of max 6" in await world.report()


async def test_deleted_message_is_posted_again_at_the_next_change():
    async with ElasticWorld().started() as world, world.led():
        await world.look()
        await world.report()
        world.slack.messages.clear()
        await grown(world)
        await world.report()
        assert [len(each) for each in world.slack.messages.values()] == [1]
        assert "4 of max 6" in world.slack.texts()[0]


async def test_burst_of_changes_is_one_look():
    async with ElasticWorld().started() as world, world.led(pause=600):
        looks = len(world.cluster.read)
        for number in range(20):
            world.start_pod(f"otter-{number}")
            await world.settle()
        assert (looks, len(world.cluster.read)) == (1, 1)


async def test_controller_scales_once_it_is_configured(redis, wait_until, monkeypatch):
    monkeypatch.setattr(reporter, "CONFIG_INTERVAL", 0.01)
    async with ElasticWorld(min=2).started() as world:
        configured, world.clients.config = world.clients.config, replace(world.clients.config, elastic=())
        tasks = [asyncio.create_task(control(redis, world.clients)) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert await redis.keys("*") == []
        world.clients.config = configured
        await wait_until(lambda: world.slack.messages, "the message is posted")
        await wait_until(lambda: world.replicas == 2, "the minimum is set")
        assert world.cluster.scaled == [2]
        assert len(world.slack.messages) == 1
        assert world.store.get("ConfigMap", "sweeps", "sweepbot-elastic")["data"].keys() == {f"{SERVING}.llm"}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


STORED = {
    "sweepbot-elastic": {
        "serving.llm": '{"replicas":2,"before":1,"changed_at":"2026-11-21T12:00:00Z","reason":"free"}',
        "serving.asr": "damaged",
    },
}


async def test_records_of_earlier_versions_are_read_and_a_damaged_one_stops_only_itself():
    elastic = ElasticRecords(clients_with(STORED))
    record = ElasticRecord(replicas=2, before=1, changed_at=NOW, reason=Reason.FREE)
    assert await elastic.load() == {"serving/llm": record}
    assert list(elastic.unreadable) == ["serving/asr"]
    assert await elastic.change("serving/llm", replicas=3) == replace(record, replicas=3)
