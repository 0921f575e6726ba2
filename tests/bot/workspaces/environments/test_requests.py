"""Requests about environments: which one they mean, which home it gets, and what a restart keeps."""

from dataclasses import replace

import pytest
from aiohttp import ClientConnectionError
from slack_sdk.errors import SlackApiError

from bot.core.errors import RetryAfterError
from bot.platform.config.environments import EnvironmentSize
from bot.workspaces.environments.request_job import RequestJob
from bot.workspaces.environments.requests import EnvironmentRequest, Verb
from k8s.api.errors import ApiError
from tests.bot.factories import OWNER, STRANGER
from tests.bot.workspaces.environments.world import NAMESPACE
from tests.scenarios.fakes import DirectCluster


async def stopped(world, **options):
    await world.ask(Verb.START, **options)
    await world.ask(Verb.STOP, name=options.get("name", "lab"))
    await world.end_pod(options.get("name", "lab"))


async def answer(world, verb, **options):
    """Return the answer to the request; "" if only its message shows the result."""
    world.slack.answers.clear()
    await world.ask(verb, **({"request_id": f"{verb} {options}"} | options))
    return world.slack.answers[-1][1] if world.slack.answers else ""


async def test_home_is_a_new_one_of_a_size_or_an_existing_one(world):
    await world.ask(Verb.START, home="30Gi")
    await world.ask(Verb.START, name="second", request_id="second")
    homes = world.kubernetes.list("PersistentVolumeClaim", NAMESPACE)
    sizes = {each["metadata"]["name"]: each["spec"]["resources"]["requests"]["storage"] for each in homes}
    assert sizes == {"home-lab": "30Gi", "home-second": "20Gi"}
    for name in ("lab", "second"):
        await world.ask(Verb.DELETE, name=name, request_id=f"delete {name}")
        await world.end_pod(name)
    assert await answer(world, Verb.START, home="lab") == ""
    assert await answer(world, Verb.START, name="third", home="lab") == (
        "Home `lab` is used by environment `lab`."
    )
    assert await answer(world, Verb.START, name="third", home="absent") == (
        "No home `absent`. For a new one, set its size, such as home=20Gi."
    )
    await world.ask(Verb.STOP)
    await world.end_pod()
    assert await answer(world, Verb.START, home="second") == (
        "`lab` uses home `lab`. To use another home, delete the environment; its home is kept."
    )
    assert await answer(world, Verb.START, home="lab", request_id="again") == ""
    assert world.record().wanted == "running"


async def test_home_that_is_being_deleted_can_be_neither_used_nor_deleted(world):
    await world.ask(Verb.START)
    await world.ask(Verb.DELETE)
    await world.end_pod()
    finalizers = {"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}
    world.kubernetes.patch("PersistentVolumeClaim", NAMESPACE, "home-lab", finalizers)
    assert await answer(world, Verb.DELETE_HOME) == "Home `lab` and its files are deleted."
    assert await answer(world, Verb.DELETE_HOME, request_id="again") == (
        "No home `lab`. `/env list` shows yours."
    )
    assert await answer(world, Verb.START, request_id="again") == (
        "Home `lab` is being deleted. Use another name, or try again later."
    )
    assert await answer(world, Verb.DELETE_HOME, name="other") == "No home `other`. `/env list` shows yours."


async def test_restart_keeps_all_options_but_those_it_sets(world):
    environments = world.clients.config.environments
    sizes = (*environments.sizes, EnvironmentSize(name="large", cpu="8", memory="64Gi"))
    world.clients.config = replace(world.clients.config, environments=replace(environments, sizes=sizes))
    await stopped(world, image="code", size="large", gpus=1)
    for restart, options, kept in (
        ("first", {}, ("code", "large", 1)),
        ("second", {"image": "jupyter"}, ("jupyter", "large", 1)),
        ("third", {"size": sizes[0].name, "gpus": 0}, ("jupyter", sizes[0].name, 0)),
    ):
        assert await answer(world, Verb.START, request_id=restart, **options) == ""
        record = world.record()
        assert (record.image, record.size, record.gpus) == kept
        assert await answer(world, Verb.START, request_id=f"{restart} again") == (
            "`lab` is already running or starting. To change its options, stop it first."
        )
        await world.ask(Verb.STOP, request_id=f"stop {restart}")
        await world.end_pod()
    assert (record.owner_name, record.starts) == ("ada", 4)


async def test_new_environment_has_the_first_image_and_size(world):
    await world.ask(Verb.START)
    record, config = world.record(), world.clients.config.environments
    assert (record.image, record.size) == (config.images[0].name, config.sizes[0].name)


async def test_request_without_a_name_means_the_only_environment_of_its_user(world):
    assert await answer(world, Verb.STOP, name="") == "You have no environment. `/env start` starts one."
    await world.ask(Verb.START)
    await world.ask(Verb.START, user=STRANGER, name="theirs")
    assert await answer(world, Verb.STOP, name="") == ""
    assert (world.record().wanted, world.record("theirs").wanted) == ("stopped", "running")
    await world.ask(Verb.START, name="second", request_id="second")
    assert await answer(world, Verb.DELETE, name="") == (
        "You have several environments. Add a name: `lab` or `second`."
    )
    assert await answer(world, Verb.DELETE, name="secnd") == "No environment `secnd`. Did you mean second?"


async def test_environment_that_is_being_deleted_is_not_started(world):
    await world.ask(Verb.START)
    world.slack.update_error = RetryAfterError("Slack is down", 5)
    await world.ask(Verb.DELETE)
    assert await answer(world, Verb.START, request_id="again") == (
        "`lab` is being deleted. Try again in a few seconds."
    )


async def test_name_that_another_object_has_keeps_no_request_waiting(world):
    await world.ask(Verb.START, name="mine", request_id="mine")
    other = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": world.workloads()[0]["spec"]}
    world.kubernetes.create(other | {"metadata": {"name": "env-lab", "namespace": NAMESPACE}})
    taken = "The name `lab` is taken in the cluster. Use another name, or try again later."
    assert await answer(world, Verb.START) == taken
    assert await answer(world, Verb.STOP, name="mine") == ""
    assert (world.record("mine").wanted, await world.waiting()) == ("stopped", [])


@pytest.mark.parametrize("error", [SlackApiError("down", {}), ClientConnectionError(), TimeoutError()])
async def test_answer_that_slack_does_not_accept_delays_no_other_request(world, error):
    await world.ask(Verb.START)
    world.slack.answer_error = error
    await world.ask(Verb.LIST, user=STRANGER)
    await world.ask(Verb.STOP)
    assert (world.record().wanted, await world.waiting()) == ("stopped", [])


async def test_request_that_the_cluster_rejects_is_answered_and_one_that_it_delays_is_repeated(
    world, monkeypatch, caplog
):
    create, request = DirectCluster.create, EnvironmentRequest(verb=Verb.START, user=OWNER, name="lab")
    error = ApiError(500, "InternalError", "a webhook timed out")

    async def refused(cluster, manifest):
        if error:
            raise error
        return await create(cluster, manifest)

    monkeypatch.setattr(DirectCluster, "create", refused)
    await world.add(replace(request, channel="C1", request_id="once"))
    with pytest.raises(ApiError, match="a webhook timed out"):
        await RequestJob(world.clients).run("now")
    assert (len(await world.waiting()), world.slack.answers) == (1, [])
    error = ApiError(403, "Forbidden", "denied by <!channel> policy")
    await world.rounds(1)
    assert world.slack.answers == [
        (OWNER, "The cluster rejected the request: denied by &lt;!channel&gt; policy")
    ]
    error = ValueError("a bug")
    assert await answer(world, Verb.START, request_id="bug") == (
        "Couldn't handle `/env start`: internal error. *Fix:* Ask an admin to check the log."
    )
    assert "a bug" in caplog.text
    assert await world.waiting() == []
