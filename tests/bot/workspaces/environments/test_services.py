"""Services from their start to their deletion, in memory."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.stored_format import NewerFormatError
from bot.platform.config.environments import ServiceConfig, ServiceLimits
from bot.workspaces.environments import idle_job
from bot.workspaces.environments.diagnosis import deciding, ready_pods
from bot.workspaces.environments.reconciler import EnvironmentReconciler
from bot.workspaces.environments.request_job import RequestJob
from bot.workspaces.environments.requests import EnvironmentRequest, Verb
from bot.workspaces.services.snippet import Service
from k8s.environments import RECORD
from local.kubernetes.apiserver import store as kubernetes
from local.kubernetes.apiserver.kinds import timestamp
from tests.bot.factories import ADMIN, OWNER, STRANGER
from tests.bot.workspaces.environments.world import NAMESPACE, World

IMAGE = "ghcr.io/lab/llm:3"
LLM = Service(image=IMAGE, port=8000)
SERVICES = ServiceConfig(images=("ghcr.io/lab/",), volumes=("models",))


@pytest.fixture
async def world(redis):
    async with World(redis, services=SERVICES).started() as world:
        yield world


async def start(world, service=LLM, **options):
    options = {"name": "llm", "request_id": f"start-{options.get('name', 'llm')}"} | options
    await world.ask(Verb.START, service=service, **options)


def pods(world):
    return world.kubernetes.list("Pod", NAMESPACE)


async def ready(world, count=None):
    for pod in pods(world)[:count]:
        await world.report_pod(pod, "PodScheduled", "PodReadyToStartContainers", "Ready")


async def end_pods(world):
    for pod in pods(world):
        world.kubernetes.delete(*kubernetes.place(pod), grace=0)
    await world.rounds(2)


def text(world):
    return world.slack.messages["1.0"][-1].blocks[0]["text"]["text"]


async def test_service_lives_from_start_to_delete_and_leaves_nothing(world):
    await start(world)
    assert world.slack.texts() == ["llm: Starting: waiting for a node (1 of 4)"]
    await ready(world)
    assert world.slack.texts() == ["llm: Running"]
    assert (
        f"`{IMAGE}`, 1 replica with no GPU, 1 CPU, and 2Gi of memory · ada\n`env-llm.environments:8000`"
        in text(world)
    )
    await world.ask(Verb.STOP, name="llm")
    await end_pods(world)
    assert world.slack.texts() == [f"llm: Stopped by <@{OWNER}>"]
    await world.ask(Verb.START, name="llm", request_id="again")
    await ready(world)
    assert world.slack.texts() == ["llm: Running"]
    await world.ask(Verb.DELETE, name="llm", services=True)
    await end_pods(world)
    assert world.slack.texts() == [f"llm: Deleted by <@{OWNER}>"]
    assert world.objects() == []
    assert len(world.slack.messages) == 1


async def test_status_that_is_written_while_the_message_is_posted_causes_no_second_message(
    world, monkeypatch
):
    post = world.slack.post

    async def posted(*args):
        place = kubernetes.place(world.kubernetes.get("Deployment", NAMESPACE, "env-llm"))
        revision = {"metadata": {"annotations": {"deployment.kubernetes.io/revision": "1"}}}
        world.kubernetes.patch(*place, revision)
        world.kubernetes.patch(*place, {"status": {"observedGeneration": 1}}, subresource="status")
        return await post(*args)

    monkeypatch.setattr(world.slack, "post", posted)
    await start(world)
    await ready(world)
    assert world.slack.texts() == ["llm: Running"]


async def test_replicas_that_are_not_ready_are_counted_with_what_they_wait_for(world):
    await start(world, replace(LLM, replicas=2))
    await ready(world, 1)
    full = "0/1 nodes are available: 1 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": full}
    condition |= {"lastTransitionTime": timestamp(world.now)}
    status = {"phase": "Pending", "conditions": [condition]}
    world.kubernetes.patch(*kubernetes.place(pods(world)[1]), {"status": status}, subresource="status")
    await world.rounds(2)
    assert world.slack.texts() == ["llm: Running, 1 of 2 replicas ready: waiting for a node (1 of 4)"]
    assert "`env-llm.environments:8000`" in text(world)
    assert full in text(world)
    await ready(world)
    assert world.slack.texts() == ["llm: Running"]


async def test_quota_is_shown_although_it_is_an_event_of_the_replica_set(world):
    meta = {"name": "gpus", "namespace": NAMESPACE}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta}
    world.kubernetes.create(quota | {"spec": {"hard": {"requests.nvidia.com/gpu": "0"}}})
    await start(world, replace(LLM, gpus=1))
    why = "The service can never start: it requests 1 GPU, and the namespace quota is 0."
    assert why in text(world)
    events = [each["metadata"]["name"] for each in world.kubernetes.list("Event", NAMESPACE)]
    for seconds, shown in ((4, True), (6, False)):  # before this start; clocks can differ
        at = timestamp(world.record("llm").since - timedelta(seconds=seconds))
        for event in events:
            world.kubernetes.patch("Event", NAMESPACE, event, {"lastTimestamp": at})
        await world.rounds(2)
        assert (why in text(world)) is shown


async def test_broken_image_is_shown_with_what_its_owner_can_do(world):
    await start(world)
    waiting = {"reason": "ImagePullBackOff", "message": "failed to resolve reference: not found"}
    await world.report_pod(pods(world)[0], "PodScheduled", "PodReadyToStartContainers", waiting=waiting)
    assert "The node can't pull the image: not found in the registry." in text(world)
    assert "Delete the service, then start it with another image or command." in text(world)


async def test_pod_has_no_rights_and_only_what_was_requested(world):
    service = replace(LLM, volumes={"models": "/models"}, env={"A": "1"}, command=("serve", "--port", "8000"))
    await start(world, service)
    [pod] = pods(world)
    spec, [container] = pod["spec"], pod["spec"]["containers"]
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["env"] == [
        {"name": "A", "value": "1"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
    ]
    assert {"name": "volume-0", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]
    claim = {"claimName": "models", "readOnly": True}
    assert {"name": "volume-0", "persistentVolumeClaim": claim} in spec["volumes"]
    assert container["command"] == ["serve", "--port", "8000"]
    labels = pod["metadata"]["labels"]
    assert (labels["sweepbot/service"], labels["sweepbot/owner"]) == ("llm", OWNER)


async def test_ingress_exists_only_where_services_have_one(redis):
    async with World(redis, services=replace(SERVICES, ingress=True)).started() as world:
        await start(world)
        await ready(world)
        assert "<https://llm.env.example/|https://llm.env.example/>" in text(world)
        [rule] = world.kubernetes.get("Ingress", NAMESPACE, "env-llm")["spec"]["rules"]
        assert rule["host"] == "llm.env.example"
    async with World(redis, services=SERVICES).started() as world:
        await start(world)
        assert world.kubernetes.list("Ingress") == []


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.START, Verb.DELETE])
async def test_others_cannot_change_a_service(world, verb):
    await start(world)
    before = world.record("llm")
    await world.ask(verb, user=STRANGER, name="llm")
    assert world.record("llm") == before
    assert f"Only <@{OWNER}> (owner) or an admin can {verb} `llm`." in world.slack.answers[0][1]
    await start(world, user=STRANGER, request_id="other")
    assert world.slack.answers[-1] == (
        STRANGER,
        "The name `llm` is used by another service or environment. Use another name.",
    )
    await world.ask(Verb.DELETE, user=ADMIN, name="llm")
    await end_pods(world)
    assert world.objects() == []


@pytest.mark.parametrize(
    ("service", "answer"),
    [
        (replace(LLM, replicas=3), "The limit is 2 replicas per service; got 3."),
        (
            replace(LLM, gpus=1, replicas=2),
            "The limit is 1 GPU per service, across all replicas; got 2 replicas",
        ),
        (
            replace(LLM, cpu="5", replicas=2),
            "The limit is 8 CPU per service, across all replicas; got 2 replicas",
        ),
        (
            replace(LLM, memory="33Gi"),
            "The limit is 32Gi of memory per service, across all replicas",
        ),
        (replace(LLM, image="ghcr.io/other/llm:3"), 'image must be, or start with, "ghcr.io/lab/"; got'),
        (replace(LLM, volumes={"home-lab": "/home"}), 'must be configured volumes; got "home-lab".'),
    ],
)
async def test_service_over_a_limit_is_refused(world, service, answer):
    await start(world, service)
    assert answer in world.slack.answers[0][1]
    assert world.objects() == []


async def test_services_of_a_person_are_limited_and_their_gpus_count_as_those_of_environments(world):
    await start(world, replace(LLM, gpus=1))
    await start(world, replace(LLM, gpus=1), name="second")
    expected = "The limit is 1 GPU in running environments per person. This service requests 1; in use: `llm`"
    assert expected in world.slack.answers[-1][1]
    await world.ask(Verb.START, gpus=1)
    assert "This environment requests 1; in use: `llm` (1)." in world.slack.answers[-1][1]
    await start(world, name="second", request_id="again")
    await start(world, name="third")
    assert world.slack.answers[-1][1] == (
        "The limit is 2 services per person. *Fix:* Delete one of yours (`llm` and `second`)."
    )
    await world.ask(Verb.START, name="lab", request_id="lab")
    assert world.record("lab").wanted == "running"


async def test_restarted_service_is_checked_again(world):
    await start(world)
    await world.ask(Verb.STOP, name="llm")
    await end_pods(world)
    environments = world.clients.config.environments
    services = replace(SERVICES, images=("other",), limits=ServiceLimits(replicas=1))
    world.clients.config = replace(
        world.clients.config, environments=replace(environments, services=services)
    )
    await world.ask(Verb.START, name="llm", request_id="again")
    assert pods(world) == []
    assert "image must be, or start with" in world.slack.texts()[0]


async def test_existing_service_is_not_changed(world):
    await start(world)
    await start(world, replace(LLM, port=9000), request_id="other")
    assert "To change it, delete it first: `/env service delete llm`." in world.slack.answers[-1][1]
    await world.ask(Verb.STOP, name="llm")
    await world.ask(Verb.START, name="llm", gpus=1, request_id="options")
    assert "`llm` is a service, and its options can't be changed." in world.slack.answers[-1][1]
    for verb in (Verb.OPEN, Verb.KEEP):
        await world.ask(verb, name="llm", hours=24, view="" if verb is Verb.KEEP else "V1")
    assert "`llm` is a service: its message has its address." in str(world.slack.views["V1"])
    assert "`llm` is a service: its message has its address." in world.slack.answers[-1][1]


async def test_lists_have_services_or_environments(world):
    await world.ask(Verb.LIST, name="", services=True, request_id="none")
    assert world.slack.answers[-1][1] == "Your services: none. `/env service` starts one."
    await start(world, replace(LLM, replicas=2))
    await ready(world, 1)
    await world.ask(Verb.START)
    await world.ask(Verb.LIST, name="", services=True)
    assert "*Your services*\n• `llm` · starting since " in world.slack.answers[-1][1]
    assert "lab" not in world.slack.answers[-1][1].replace(IMAGE, "")
    await world.ask(Verb.LIST, name="", request_id="all")
    assert "`llm`" not in world.slack.answers[-1][1]
    await world.ask(Verb.DELETE, name="lab", services=True)
    assert world.slack.answers[-1][1].startswith("No service `lab`.")


async def test_command_without_a_name_is_never_about_a_service(world):
    await start(world)
    await world.ask(Verb.DELETE, name="")
    assert world.slack.answers[-1][1] == "You have no environment. `/env start` starts one."


async def test_running_service_is_never_measured_as_idle(world):
    await start(world)
    await ready(world)
    [found] = await idle_job.cluster.load_all(world.clients)
    assert found.record.ready_at
    assert not idle_job._is_running(found)


async def test_without_configuration_deployments_are_not_read(redis):
    async with World(redis).started() as world:
        await start(world)
        assert world.slack.answers[0][1].startswith("Services aren't configured.")
        assert world.objects() == []
        before = world.clock.calls
        await world.add(EnvironmentRequest(verb=Verb.LIST, user=OWNER))
        await RequestJob(world.clients).run("now")
        assert world.clock.calls - before == 3  # StatefulSets, homes, and the answer


async def test_service_of_a_newer_version_is_left_to_it_and_counts(world):
    await start(world, replace(LLM, gpus=1))
    [before] = world.kubernetes.list("Deployment")
    stored = json.loads(before["metadata"]["annotations"][RECORD])
    stored["service"]["color"] = "blue"
    patch = {"metadata": {"annotations": {RECORD: json.dumps(stored)}}}
    world.kubernetes.patch("Deployment", NAMESPACE, "env-llm", patch)
    with pytest.raises(NewerFormatError):
        await EnvironmentReconciler(world.clients).run("llm")
    for verb, options in (
        (Verb.DELETE, {"name": "llm"}),
        (Verb.START, {"name": "second", "service": replace(LLM, gpus=1)}),
    ):
        request = EnvironmentRequest(verb=verb, user=OWNER, channel="C1", request_id="new", **options)
        await world.add(request)
        await RequestJob(world.clients).run("now")
    assert "was saved by a newer version" in world.slack.answers[-2][1]
    assert "in use: `llm` (1)" in world.slack.answers[-1][1]


def test_pod_that_shows_the_state_is_not_ready_or_is_the_last_that_ends():
    def a_pod(*true, **meta):
        at = "2026-11-21T12:00:00Z"
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in true]
        return {"metadata": {"name": "web-0"} | meta, "status": {"conditions": conditions}}

    ends = a_pod("PodScheduled", "Ready", deletionTimestamp="2026-11-21T12:00:00Z")
    ready, starts = a_pod("PodScheduled", "Ready"), a_pod("PodScheduled")
    assert deciding([ready, starts], 2) is starts
    assert deciding([ends, ready], 1) is ready
    assert deciding([ends, ready], 2) is None
    assert deciding([ends], 1) is ends
    assert deciding([], 1) is None
    assert ready_pods([ends, ready, starts]) == 1
