"""Environments from their start to their deletion, in memory."""

import base64
import json
import logging
import re
from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from bot.config.profiles import Profile
from bot.core.errors import RetryAfterError
from bot.core.masking import Mask
from bot.core.stored_format import NewerFormatError
from bot.environments.login import login
from bot.environments.reconciler import EnvironmentReconciler
from bot.environments.record import Wanted
from bot.environments.request_job import RequestJob
from bot.environments.requests import REQUESTS_KEY, EnvironmentRequest, Verb
from bot.slack.client import MessageRejectedError
from k8s.environments import RECORD
from local.kubernetes.kinds import timestamp
from tests.bot.environments.world import NAMESPACE, World
from tests.bot.factories import ADMIN, OWNER, STRANGER

HOME = ("PersistentVolumeClaim", "home-lab")


@pytest.fixture
async def world(redis):
    async with World(redis).started() as world:
        yield world


async def test_environment_lives_from_start_to_delete_and_its_home_survives(world):
    await world.ask(Verb.START)
    assert world.slack.texts() == ["lab: Starting: waiting for a node (1 of 4)"]
    await world.ready()
    assert world.slack.texts() == ["lab: Running"]
    await world.ask(Verb.STOP)
    assert world.slack.texts() == [f"lab: Stopping by <@{OWNER}>"]
    await world.end_pod()
    assert world.slack.texts() == [f"lab: Stopped by <@{OWNER}>"]
    await world.ask(Verb.START, request_id="again")
    await world.ready()
    assert world.slack.texts() == ["lab: Running"]
    assert world.record().starts == 2
    await world.ask(Verb.DELETE)
    await world.end_pod()
    assert world.slack.texts() == [f"lab: Deleted by <@{OWNER}>"]
    assert world.objects() == [HOME]


async def test_start_with_the_same_request_twice_creates_one_environment(world):
    for _ in range(2):
        await world.ask(Verb.START, name="", suggested="ada-brave-otter", request_id="once")
    assert len(world.slack.messages) == 1
    assert [kind for kind, _ in world.objects()].count("StatefulSet") == 1


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


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.KEEP, Verb.DELETE])
async def test_others_cannot_change_an_environment(world, verb):
    await world.ask(Verb.START)
    await world.ready()
    before = world.record()
    await world.ask(verb, user=STRANGER, hours=24)
    assert world.record() == before
    assert world.slack.answers == [(STRANGER, f"Only <@{OWNER}> (owner) or an admin can {verb} `lab`.")]


async def test_name_of_another_person_is_refused(world):
    await world.ask(Verb.START)
    await world.ask(Verb.START, user=STRANGER)
    assert world.slack.answers == [
        (
            STRANGER,
            f"Only <@{OWNER}> (owner) or an admin can start `lab`. To start your own, use another name.",
        )
    ]


async def test_home_of_another_person_is_refused(world):
    await world.ask(Verb.START)
    await world.ask(Verb.DELETE)
    await world.end_pod()
    await world.ask(Verb.START, user=STRANGER)
    assert world.slack.answers == [(STRANGER, "Home `lab` belongs to someone else. Use another name.")]
    await world.ask(Verb.DELETE_HOME, user=STRANGER)
    assert world.slack.answers[-1] == (STRANGER, f"Only <@{OWNER}> (owner) can delete home `lab`.")
    assert world.objects() == [HOME]


async def test_home_is_deleted_only_by_its_own_request_and_only_unused(world):
    await world.ask(Verb.START)
    await world.ask(Verb.DELETE_HOME)
    expected = "Home `lab` is used by environment `lab`. Delete that environment first."
    assert world.slack.answers == [(OWNER, expected)]
    await world.ask(Verb.DELETE)
    await world.end_pod()
    await world.ask(Verb.DELETE_HOME, request_id="typed")
    assert world.objects() == []


async def test_limits_of_a_person_are_enforced(world, caplog):
    caplog.set_level(logging.INFO, "sweepbot.audit")
    for name in ("a", "b", "c"):
        await world.ask(Verb.START, name=name, request_id=name)
    assert world.slack.answers == [
        (OWNER, "The limit is 2 environments per person. *Fix:* Delete one of yours (`a` and `b`).")
    ]
    await world.ask(Verb.DELETE, name="b")
    await world.ask(Verb.STOP, name="a")
    await world.end_pod("a")
    await world.ask(Verb.START, name="a", gpus=2, request_id="more")
    assert world.slack.answers[-1][1].startswith("The limit is 1 GPU per environment; got gpus=2.")
    assert f"user={OWNER} action=environment_start environment=c: denied: The limit is 2" in caplog.text
    assert f"user={OWNER} action=environment_start environment=a: denied: The limit is 1" in caplog.text


async def test_second_gpu_of_a_person_is_denied_with_what_is_in_use(world):
    await world.ask(Verb.START, name="a", gpus=1, request_id="a")
    await world.ask(Verb.START, name="b", gpus=1, request_id="b")
    assert world.slack.answers[-1][1] == (
        "The limit is 1 GPU in running environments per person. This environment requests 1; in use: `a` (1)."
        " *Fix:* Stop one, or request fewer GPUs."
    )


async def test_outside_the_bots_channels_nothing_is_left(world):
    world.slack.invited = False
    await world.ask(Verb.START)
    assert world.objects() == []
    assert "Sweepbot can't post in that channel" in world.slack.answers[0][1]


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
        await world.requests.add(EnvironmentRequest(verb=verb, user=OWNER, **options))
    await world.rounds(3)
    await world.end_pod()
    await world.ready()
    assert world.pod()["metadata"]["uid"] != pod
    uid = world.kubernetes.get("StatefulSet", NAMESPACE, "env-lab")["metadata"]["uid"]
    secret = world.kubernetes.get("Secret", NAMESPACE, "env-lab")
    assert base64.b64decode(secret["data"]["login"]).decode() == login("xoxb-1", uid, 2)


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
    await world.redis.rpush(REQUESTS_KEY, newer)
    await world.ask(Verb.START)
    assert world.record().wanted is Wanted.RUNNING
    assert await world.requests.all() == [newer]
    with pytest.raises(NewerFormatError):
        await RequestJob(world.clients, world.requests).run("now")


async def test_request_is_repeated_if_redis_is_lost_while_it_is_handled(world, monkeypatch):
    async def lost(_):
        raise RedisConnectionError

    options = {"name": "lab", "channel": "C1", "request_id": "once"}
    await world.requests.add(EnvironmentRequest(verb=Verb.START, user=OWNER, **options))
    [stored] = await world.requests.all()
    monkeypatch.setattr(world.queue, "add", lost)
    with pytest.raises(RedisConnectionError):
        await RequestJob(world.clients, world.requests).run("now")
    assert await world.requests.all() == [stored]
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
    await world.requests.add(EnvironmentRequest(verb=verb, user=OWNER, user_name="ada", **options))
    await RequestJob(world.clients, world.requests).run("now")


MIG = Profile(
    name="mig",
    gpus=2,
    resource="nvidia.com/mig-3g.40gb",
    cpu="96",
    nodes={"pool": ("a100",), "zone": ("a", "b")},
    tolerations=({"key": "dedicated", "value": "a100"},),
    priority_class="research",
)
RESEARCH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "research"},
    "value": 10,
}


@pytest.fixture
async def machines(world):
    """A world with a profile, and the PriorityClass that it names."""
    world.kubernetes.create(RESEARCH)
    world.clients.config = replace(world.clients.config, profiles=(MIG,))
    return world


async def test_profile_chooses_the_machines_and_what_a_gpu_is(machines):
    world = machines
    await world.ask(Verb.START, profile="mig")
    pod = world.pod()["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "8Gi", "nvidia.com/mig-3g.40gb": "1"}
    assert pod["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"pool": "a100"}, "research")
    assert "'values': ['a', 'b']" in str(pod["affinity"])
    assert "podAffinity" not in pod["affinity"]
    assert {"key": "dedicated", "value": "a100"} in pod["tolerations"]
    assert "1 GPU (`mig`)" in world.slack.messages["1.0"][-1].blocks[0]["text"]["text"]


async def test_stopped_environment_keeps_its_profile_until_the_configuration_loses_it(machines):
    world = machines
    await world.ask(Verb.START, profile="mig")
    await world.ask(Verb.STOP)
    await world.end_pod()
    await world.ask(Verb.START, request_id="again")
    assert world.pod()["spec"]["nodeSelector"] == {"pool": "a100"}
    await world.ask(Verb.STOP, request_id="stop again")
    await world.end_pod()
    world.clients.config = replace(world.clients.config, profiles=())
    await world.ask(Verb.START, request_id="third")
    assert world.pod() is None
    assert (
        "Profile mig is no longer configured. Start the environment with another"
        in world.slack.answers[-1][1]
    )


async def test_start_without_gpus_leaves_the_gpu_machines(world):
    world.kubernetes.create(RESEARCH)
    world.clients.config = replace(world.clients.config, profiles=(MIG, Profile(name="cpu", gpus=0)))
    await world.ask(Verb.START, profile="mig")
    await world.ask(Verb.STOP)
    await world.end_pod()
    await world.ask(Verb.START, profile="cpu", request_id="again")
    pod = world.pod()["spec"]
    assert pod.get("nodeSelector", {}) == {}
    assert {"key": "dedicated", "value": "a100"} not in pod.get("tolerations", [])
    assert pod.get("priorityClassName") != "research"


async def test_profile_removed_before_the_pod_starts_stops_the_environment_with_the_reason(machines):
    world = machines
    await world.ask(Verb.START, profile="mig")
    await world.ask(Verb.STOP)
    request = EnvironmentRequest(verb=Verb.START, user=OWNER, name="lab", channel="C1", request_id="again")
    await world.requests.add(request)
    await RequestJob(world.clients, world.requests).run("now")
    world.clients.config = replace(world.clients.config, profiles=())
    await world.end_pod()
    assert world.slack.texts()[0].startswith("lab: Stopped: Profile mig is no longer configured.")
