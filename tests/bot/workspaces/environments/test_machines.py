"""Environments on the machines of profiles, in memory."""

from dataclasses import replace

import pytest

from bot.platform.config.profiles import Profile
from bot.workspaces.environments.request_job import RequestJob
from bot.workspaces.environments.requests import EnvironmentRequest, Verb
from tests.bot.factories import OWNER

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
    await world.add(request)
    await RequestJob(world.clients).run("now")
    world.clients.config = replace(world.clients.config, profiles=())
    await world.end_pod()
    assert world.slack.texts()[0].startswith("lab: Stopped: Profile mig is no longer configured.")
