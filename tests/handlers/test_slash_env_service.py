"""/env service from the command and the form to the queued request."""

from dataclasses import replace

import pytest

from bot.platform.config.environments import ServiceConfig
from bot.platform.config.limits import Launch
from bot.workspaces.environments.requests import Verb
from bot.workspaces.services.snippet import Service
from handlers.slash_env_service import service_submitted
from local.slack.validation import view_complaints
from tests.bot.factories import CONFIG, OWNER
from tests.bot.workspaces.environments.world import ENVIRONMENTS
from tests.handlers.test_slash_env import Place

CONFIGURED = replace(
    CONFIG, environments=replace(ENVIRONMENTS, services=ServiceConfig(images=("ghcr.io/lab/",)))
)
FIELDS = ("name", "image", "port", "replicas", "gpus", "cpu", "memory", "command", "more")
LLM = {"name": "llm", "image": "ghcr.io/lab/llm:3", "port": "8000"}
SNIPPET = "name: llm\nimage: ghcr.io/lab/llm:3\nport: 8000"


@pytest.fixture
def here(redis):
    return Place(redis, CONFIGURED)


def submitted(**values):
    state = {key: {key: {"value": values.get(key)}} for key in FIELDS}
    view = {"id": "V9", "private_metadata": "C1", "state": {"values": state}}
    return {"view": view, "user": {"id": OWNER, "username": "ada"}}


async def test_snippet_is_queued_and_acknowledged(here):
    assert (await here.types(f"service start\n{SNIPPET}")).startswith("Starting `llm`…")
    (request,) = await here.queued()
    assert (request.verb, request.channel, request.request_id) == (Verb.START, "C1", "T1")
    assert request.service == Service(image="ghcr.io/lab/llm:3", port=8000)


async def test_list_and_delete_are_queued(here):
    assert "Looking up services…" in await here.types("service list")
    assert "Request sent." in await here.types("service delete llm")
    assert [(each.verb, each.services) for each in await here.queued()] == [
        (Verb.LIST, True),
        (Verb.DELETE, True),
    ]


@pytest.mark.parametrize("text", ["service", "service start"])
async def test_form_opens_and_its_submission_starts_the_service(here, text):
    assert await here.types(text) == ""
    (view,) = here.views
    assert view_complaints(view, "modal") == []
    assert [each["block_id"] for each in view["blocks"] if each["type"] == "input"] == list(FIELDS)
    assert "Allowed: ghcr.io/lab/" in str(view)
    answer = await service_submitted(here.context, submitted(**LLM, gpus="2", command="serve --x 'a b'"))
    assert "Starting `llm` with 2 GPUs" in str(answer["view"])
    (request,) = await here.queued()
    assert request.service == Service(
        image="ghcr.io/lab/llm:3", port=8000, gpus=2, command=("serve", "--x", "a b")
    )


async def test_yaml_of_the_form_replaces_or_completes_the_fields(here):
    await service_submitted(here.context, submitted(more=SNIPPET))
    await service_submitted(here.context, submitted(**LLM, more="env: {A: b}"))
    first, second = await here.queued()
    assert (first.name, first.service.env, second.service.env) == ("llm", {}, {"A": "b"})


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ({}, {"name", "image", "port"}),
        ({**LLM, "port": "08"}, {"port"}),
        ({**LLM, "name": "a\nimage: evil:1"}, {"name"}),
        ({**LLM, "image": "docker.io/evil:1"}, {"image"}),
        ({**LLM, "memory": "much", "more": "env: 1"}, {"memory", "more"}),
        ({**LLM, "more": "port: 9000"}, {"more"}),
        ({**LLM, "more": "volumes: {secrets: /s}"}, {"more"}),
        ({**LLM, "more": "a: b: c"}, {"more"}),
    ],
)
async def test_errors_are_shown_below_their_fields(here, values, fields):
    answer = await service_submitted(here.context, submitted(**values))
    assert answer["errors"].keys() == fields
    assert "form:" not in str(answer)
    assert await here.queued() == []


async def test_without_configuration_or_permission_services_are_refused(redis):
    without = replace(CONFIG, environments=ENVIRONMENTS)
    for text in ("service", "service list", f"service start {SNIPPET}"):
        assert (await Place(redis, without).types(text)).startswith("Services aren't configured. *Fix:*")
    answer = await service_submitted(Place(redis, without).context, submitted(**LLM))
    assert "Services aren't configured." in str(answer["view"])
    place = Place(redis, replace(CONFIGURED, launch=Launch(people=("UADA",))))
    for text in ("service", f"service start {SNIPPET}"):
        assert (await place.types(text)).startswith("You don't have permission to start services.")
    assert await place.queued() == place.views == []


async def test_help_has_services(here):
    assert "`/env service delete NAME`: delete it" in await here.types("help")
    assert "`/env service delete NAME`: delete it" in await here.types("service help")


async def test_quoted_word_is_the_same_command(here):
    assert await here.types("`service` list") == await here.types("service list")
