"""Environments from their start to their deletion, in memory."""

import base64
import json
import re
from datetime import timedelta

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from bot.core.errors import RetryAfterError
from bot.core.stored_format import NewerFormatError
from bot.platform.slack.client import MessageRejectedError
from bot.text.masking import Mask
from bot.workspaces.environments import cluster
from bot.workspaces.environments.reconciler import POLL, EnvironmentReconciler
from bot.workspaces.environments.record import Wanted
from bot.workspaces.environments.request_job import RequestJob
from bot.workspaces.environments.requests import ITEM, EnvironmentRequest, Verb
from bot.workspaces.environments.spec import login
from k8s.api.errors import ApiError
from k8s.environments import RECORD
from local.kubernetes.apiserver.kinds import timestamp
from tests.bot.factories import ADMIN, OWNER, STRANGER
from tests.bot.workspaces.environments.world import NAMESPACE, World
from tests.scenarios.fakes import DirectCluster

HOME = ("PersistentVolumeClaim", "home-lab")


async def test_environment_lives_from_start_to_delete_and_its_home_survives(world):
    await world.ask(Verb.START)
    assert world.slack.texts() == ["lab: Starting: waiting for a node (1 of 4)"]
    assert await EnvironmentReconciler(world.clients).run("lab") == POLL
    await world.ready()
    assert world.slack.texts() == ["lab: Running"]
    assert await EnvironmentReconciler(world.clients).run("lab") is None
    until = world.now + timedelta(hours=24)
    await world.ask(Verb.KEEP, hours=24)
    assert world.record().keep_until == until
    await world.ask(Verb.STOP, name="")
    assert world.slack.texts() == [f"lab: Stopping by <@{OWNER}>"]
    assert await EnvironmentReconciler(world.clients).run("lab") == POLL
    await world.end_pod()
    assert world.slack.texts() == [f"lab: Stopped by <@{OWNER}>"]
    assert await EnvironmentReconciler(world.clients).run("lab") is None
    for verb in (Verb.STOP, Verb.KEEP):
        await world.ask(verb, hours=24, request_id="late")
        assert world.slack.answers.pop() == (OWNER, "`lab` isn't running.")
    await world.ask(Verb.START, request_id="again")
    await world.ready()
    assert world.slack.texts() == ["lab: Running"]
    assert world.record().starts == 2
    edits = len(world.slack.messages["1.0"])
    await world.rounds(2)
    assert len(world.slack.messages["1.0"]) == edits, "an unchanged message isn't edited"
    await world.ask(Verb.DELETE)
    await world.end_pod()
    assert world.slack.texts() == [f"lab: Deleted by <@{OWNER}>"]
    assert world.objects() == [HOME]


async def test_only_a_home_that_exists_is_called_kept(world):
    """One that is stopped before a worker sees its start has none."""
    await world.add(
        EnvironmentRequest(verb=Verb.START, user=OWNER, user_name="ada", name="lab", channel="C1")
    )
    await world.ask(Verb.STOP)
    await world.ask(Verb.DELETE)
    shown = [str(each.blocks) for each in world.slack.messages["1.0"]]
    assert ["Stopped" in each or "Deleted" in each for each in shown[-2:]] == [True, True]
    assert [each for each in shown if "kept" in each] == []
    await world.ask(Verb.START, request_id="again")
    await world.ask(Verb.STOP, request_id="again")
    assert "The home is kept." in str(world.slack.messages["2.0"][-1].blocks)


async def test_start_with_the_same_request_twice_creates_one_environment(world):
    for _ in range(2):
        await world.ask(Verb.START, name="", suggested="ada-brave-otter", request_id="once")
    assert len(world.slack.messages) == 1
    assert [kind for kind, _ in world.objects()].count("StatefulSet") == 1
    assert world.slack.answers == []


async def test_stages_and_their_shares_are_shown(world):
    await world.ask(Verb.START)
    await world.report("lab", "PodScheduled", waiting={"reason": "ContainerCreating"})
    assert "mounting the home (2 of 4)" in world.slack.texts()[0]
    creating = {"reason": "ContainerCreating"}
    await world.report("lab", "PodScheduled", "PodReadyToStartContainers", waiting=creating)
    assert "pulling the image (3 of 4)" in world.slack.texts()[0]
    await world.report("lab", "PodScheduled", "PodReadyToStartContainers")
    assert "waiting for the server to answer (4 of 4)" in world.slack.texts()[0]
    await world.ready()
    assert list(world.record().took) == ["node", "volume", "image", "server"]
    footer = world.slack.messages["1.0"][-1].blocks[1]["elements"][0]["text"]
    assert re.search(r"ready in \d+ s \(node \d+ s, volume \d+ s, image \d+ s, server \d+ s\)", footer)


async def test_login_is_in_the_owners_modal_only_and_new_at_each_start(world, caplog):
    caplog.set_level("DEBUG")
    await world.ask(Verb.START)
    await world.ready()
    await world.ask(Verb.OPEN, view="V1")
    uid = world.kubernetes.get("StatefulSet", NAMESPACE, "env-lab")["metadata"]["uid"]
    first, second = (login("xoxb-1", uid, start) for start in (1, 2))
    assert first in str(world.slack.views["V1"])
    assert first in Mask()(str(world.slack.views["V1"]))
    assert first not in str(world.slack.messages) + str(world.slack.answers) + caplog.text
    assert first not in str(world.kubernetes.list("StatefulSet") + world.kubernetes.list("Pod"))
    for other in (ADMIN, STRANGER):
        await world.ask(Verb.OPEN, user=other, view=f"V-{other}")
        assert first not in str(world.slack.views[f"V-{other}"])
        assert "its credentials are personal" in str(world.slack.views[f"V-{other}"])
    await world.ask(Verb.STOP)
    await world.end_pod()
    await world.ask(Verb.START, request_id="again")
    await world.ready()
    await world.ask(Verb.OPEN, view="V2")
    assert second in str(world.slack.views["V2"])


async def test_quota_is_shown_with_its_numbers_and_the_environment_starts_once_it_is_free(world):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": NAMESPACE},
    }
    world.kubernetes.create(quota | {"spec": {"hard": {"requests.nvidia.com/gpu": "0"}}})
    await world.ask(Verb.START, gpus=1)
    text = world.slack.messages["1.0"][-1].blocks[0]["text"]["text"]
    assert "The environment can never start: it requests 1 GPU, and the namespace quota is 0." in text


async def test_full_nodes_are_shown_in_the_words_of_trials(world):
    await world.ask(Verb.START, gpus=1)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}}
    made = world.kubernetes.create(node)
    world.kubernetes.set_status(made, {"allocatable": {"nvidia.com/gpu": "2"}})
    full = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    unscheduled(world, full)
    await world.rounds(2)
    text = world.slack.messages["1.0"][-1].blocks[0]["text"]["text"]
    assert "not enough free GPUs on 1 node. It starts when GPUs are released." in text
    assert "waiting for a node with 1 free GPU (1 of 4)" in text


async def test_unbound_home_is_shown_with_the_provisioners_words(redis):
    async with World(redis, storage_class="absent").started() as world:
        await world.ask(Verb.START)
        unscheduled(world, "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
        await world.rounds(40)
        text = world.slack.messages["1.0"][-1].blocks[0]["text"]["text"]
        assert "PersistentVolumeClaim `home-lab` isn't bound." in text
        assert 'storageclass.storage.k8s.io "absent" not found' in text


async def test_broken_image_is_shown_and_can_be_stopped(world):
    await world.ask(Verb.START)
    words = 'Back-off pulling image "x": failed to resolve reference: not found'
    waiting = {"reason": "ImagePullBackOff", "message": words}
    await world.report("lab", "PodScheduled", "PodReadyToStartContainers", waiting=waiting)
    text = world.slack.messages["1.0"][-1].blocks[0]["text"]["text"]
    assert "The node can't pull the image: not found in the registry." in text
    assert "Ask an admin to check this image under `environments:`" in text
    await world.ask(Verb.STOP)
    await world.end_pod()
    assert world.slack.texts() == [f"lab: Stopped by <@{OWNER}>"]


async def test_list_names_own_environments_and_unused_homes(world):
    await world.ask(Verb.START, name="old", request_id="old")
    await world.ask(Verb.DELETE, name="old")
    await world.end_pod("old")
    await world.ask(Verb.START)
    await world.ask(Verb.LIST, name="")
    answer = world.slack.answers[-1][1]
    assert "• `lab` · starting since " in answer
    assert "• Home `old` (20Gi), not in use" in answer


def unscheduled(world, message):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    condition |= {"lastTransitionTime": timestamp(world.now)}
    status = {"phase": "Pending", "conditions": [condition]}
    world.kubernetes.patch("Pod", NAMESPACE, "env-lab-0", {"status": status}, subresource="status")


async def test_stop_and_start_at_once_replace_the_pod_and_its_login(world):
    await world.ask(Verb.START)
    await world.ready()
    pod = world.pod()["metadata"]["uid"]
    for verb in (Verb.STOP, Verb.START):
        options = {"name": "lab", "channel": "C1", "request_id": f"{verb}-again"}
        await world.add(EnvironmentRequest(verb=verb, user=OWNER, **options))
    await world.controllers.close()
    await world.round()
    [waiting] = world.kubernetes.list("StatefulSet")
    assert waiting["spec"]["replicas"] == 0, "its controller would keep the pod"
    world.controllers.start()
    await world.rounds(3)
    await world.end_pod()
    await world.ready()
    assert world.pod()["metadata"]["uid"] != pod
    uid = world.kubernetes.get("StatefulSet", NAMESPACE, "env-lab")["metadata"]["uid"]
    secret = world.kubernetes.get("Secret", NAMESPACE, "env-lab")
    assert base64.b64decode(secret["data"]["login"]).decode() == login("xoxb-1", uid, 2)


async def test_start_that_the_cluster_rejects_stops_with_its_words_and_is_repeated_after_an_outage(
    world, monkeypatch
):
    create = DirectCluster.create
    error = ApiError(500, "InternalError", "a webhook timed out")

    async def refused(cluster, manifest):
        if error and manifest["kind"] == "Secret":
            raise error
        return await create(cluster, manifest)

    monkeypatch.setattr(DirectCluster, "create", refused)
    with pytest.raises(ApiError, match="a webhook timed out"):
        await world.ask(Verb.START)
    assert world.record().wanted is Wanted.RUNNING
    error = ApiError(403, "Forbidden", "denied by policy, token xoxb-1234567890")
    await world.rounds(1)
    [text] = world.slack.texts()
    assert text.startswith("lab: Stopped: the cluster rejected it (denied by policy, token ")
    assert "xoxb" not in text
    error = None
    await world.ask(Verb.START, request_id="again")
    await world.ready()
    assert world.slack.texts() == ["lab: Running"]


async def test_change_after_a_read_is_never_overwritten(world):
    await world.ask(Verb.START)
    environment = await cluster.load("lab", world.clients)
    await world.ask(Verb.STOP)
    with pytest.raises(RetryAfterError):
        await cluster.save(environment, environment.record, world.clients)
    assert world.record().wanted is Wanted.STOPPED


async def test_deleted_environment_releases_its_gpus_while_slack_is_down(world):
    await world.ask(Verb.START)
    await world.ready()
    world.slack.update_error = RetryAfterError("Slack is down", 5)
    await world.ask(Verb.DELETE)
    assert "deletionTimestamp" in world.pod()["metadata"]
    world.slack.update_error = None
    await world.end_pod()
    assert world.objects() == [HOME]


async def test_deletion_ends_although_slack_rejects_the_message_to_its_owner(world):
    world.slack.invited, world.slack.answer_error = False, MessageRejectedError("messages_tab_disabled")
    await world.ask(Verb.START)
    assert world.objects() == []


async def test_environment_started_before_its_predecessor_is_collected_keeps_its_objects(redis):
    """The garbage collector deletes what belonged to a deleted StatefulSet seconds later."""
    world = World(redis)
    world.kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for verb in (Verb.START, Verb.STOP, Verb.DELETE):
        await world.ask(verb)
    kinds = ("Secret", "Service", "Ingress")
    assert {(kind, "env-lab") for kind in kinds} < {*world.objects()}
    await world.ask(Verb.START, request_id="again")
    world.controllers.start()
    await world.settle()
    await world.controllers.close()
    owner = world.kubernetes.get("StatefulSet", NAMESPACE, "env-lab")["metadata"]["uid"]
    for kind in kinds:
        [reference] = world.kubernetes.get(kind, NAMESPACE, "env-lab")["metadata"]["ownerReferences"]
        assert reference["uid"] == owner


async def test_other_image_with_another_port_is_reached_by_the_same_service(world):
    await world.ask(Verb.START)
    await world.ready()
    await world.ask(Verb.STOP)
    await world.end_pod()
    await world.ask(Verb.START, image="code", request_id="again")
    [service] = world.kubernetes.get("Service", NAMESPACE, "env-lab")["spec"]["ports"]
    [rule] = world.kubernetes.get("Ingress", NAMESPACE, "env-lab")["spec"]["rules"]
    [container] = world.pod()["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports[service["targetPort"]] == 8080
    [path] = rule["http"]["paths"]
    assert path["backend"]["service"]["port"]["number"] == service["port"]


@pytest.mark.parametrize(
    "newer", ['{"verb":"clone","user":"U1"}', f'{{"verb":"stop","user":"{OWNER}","name":"lab","why":"x"}}']
)
async def test_request_of_a_newer_version_waits_for_it_and_blocks_no_other(world, newer):
    await world.store.add_request(str(ITEM), newer)
    await world.ask(Verb.START)
    assert world.record().wanted is Wanted.RUNNING
    assert await world.waiting() == [newer]
    with pytest.raises(NewerFormatError):
        await RequestJob(world.clients).run("now")


async def test_request_is_repeated_if_redis_is_lost_while_it_is_handled(world, monkeypatch):
    async def lost(_):
        raise RedisConnectionError

    options = {"name": "lab", "channel": "C1", "request_id": "once"}
    await world.add(EnvironmentRequest(verb=Verb.START, user=OWNER, **options))
    [stored] = await world.waiting()
    monkeypatch.setattr(world.queue, "add", lost)
    with pytest.raises(RedisConnectionError):
        await RequestJob(world.clients).run("now")
    assert await world.waiting() == [stored]
    assert world.slack.answers == []


async def test_modal_shows_why_nothing_opens(world):
    await world.ask(Verb.OPEN, name="other", view="V1")
    assert "No environment `other`" in str(world.slack.views["V1"])
    assert world.slack.answers == []


async def test_environment_of_a_newer_version_is_left_to_it_and_others_are_handled(world):
    await world.ask(Verb.START, gpus=1)
    [before] = world.kubernetes.list("StatefulSet")
    stored = json.loads(before["metadata"]["annotations"][RECORD]) | {"color": "blue"}
    patch = {"metadata": {"annotations": {RECORD: json.dumps(stored)}}}
    world.kubernetes.patch("StatefulSet", NAMESPACE, "env-lab", patch)
    with pytest.raises(NewerFormatError):
        await EnvironmentReconciler(world.clients).run("lab")
    for verb in (Verb.STOP, Verb.START, Verb.OPEN, Verb.KEEP, Verb.DELETE):
        await handled(world, verb, name="lab", hours=24)
        assert world.slack.answers[-1][1] == (
            "`lab` was saved by a newer version of Sweepbot, and this version can't change it. *Fix:* Try "
            "again when the update is complete, or ask an admin to update Sweepbot."
        )
    after = world.kubernetes.get("StatefulSet", NAMESPACE, "env-lab")
    assert json.loads(after["metadata"]["annotations"][RECORD]) == stored
    await handled(world, Verb.DELETE_HOME, name="lab")
    assert "Home `lab` is used by environment `lab`." in world.slack.answers[-1][1]
    await handled(world, Verb.START, name="other", gpus=1)
    assert "The limit is 1 GPU in running environments per person." in world.slack.answers[-1][1]
    await handled(world, Verb.START, name="other")
    await handled(world, Verb.LIST)
    assert "• `lab` · starting since " in world.slack.answers[-1][1]
    assert "• `other` · starting since " in world.slack.answers[-1][1]


async def handled(world, verb, **options):
    options = {"channel": "C1", "request_id": f"{verb}-newer"} | options
    await world.add(EnvironmentRequest(verb=verb, user=OWNER, user_name="ada", **options))
    await RequestJob(world.clients).run("now")
