"""/env from the command, the form, and the buttons to the queued request."""

from dataclasses import replace
from typing import Any

import pytest

from bot.platform.config.limits import Launch
from bot.platform.config.profiles import Profile
from bot.platform.slack.mrkdwn import cut
from bot.workspaces.environments.command_line import TABLE
from bot.workspaces.environments.requests import ITEM, Verb, load
from handlers.any_wording import reply_to
from handlers.slash_env import _delete_home, _submitted, answer_env, names_an_environment
from tests.bot.factories import CONFIG, OWNER
from tests.bot.workspaces.environments.world import ENVIRONMENTS
from tests.handlers.factories import a_context
from tests.scenarios.test_unconfirmed_requests import assert_not_lost
from tests.scenarios.test_unconfirmed_requests import typed as command_of

CONFIGURED = replace(CONFIG, environments=ENVIRONMENTS)


class Place:
    def __init__(self, redis, config=CONFIGURED):
        self.context = a_context(redis, config=config)
        self.views: list[dict[str, Any]] = []

    async def views_open(self, *, trigger_id, view):
        self.views.append(view)
        return {"view": {"id": f"V{len(self.views)}"}}

    async def types(self, text):
        command = {"text": text, "user_id": OWNER, "user_name": "ada", "channel_id": "C1"}
        command |= {"trigger_id": "T1", "response_url": "https://hooks/1"}
        self.context.spoken["/env"] = TABLE, answer_env
        reply = await reply_to(self.context, command | {"command": "/env"}, self)
        return cut(reply if isinstance(reply, str) else reply.text)

    async def queued(self):
        return [load(each) for each in await self.context.store.requests(str(ITEM))]


@pytest.fixture
def here(redis):
    return Place(redis)


def submitted(**values):
    fields = dict.fromkeys(("name", "image", "gpus", "size", "home"), "") | values
    state = {key: {"value": {"value": value}} for key, value in fields.items()}
    view = {"id": "V9", "private_metadata": "C1", "state": {"values": state}}
    return {"view": view, "user": {"id": OWNER, "username": "ada"}}


async def test_start_is_queued_and_acknowledged_with_its_name(here):
    assert (await here.types("start lab gpus=1")).startswith("Starting `lab`…")
    (request,) = await here.queued()
    assert (request.verb, request.name, request.gpus, request.channel) == (Verb.START, "lab", 1, "C1")


async def test_start_without_a_name_suggests_the_same_name_for_a_repeated_delivery(here):
    assert await here.types("start") == await here.types("start")
    first, second = await here.queued()
    assert first == second
    assert first.suggested.startswith("ada-")


async def test_env_alone_opens_the_form_and_its_submission_starts_the_environment(here):
    assert await here.types("") == ""
    assert here.views[0]["private_metadata"] == "C1"
    answer = await _submitted(here.context, submitted(name="lab", image="code", gpus="1", size="m"))
    assert "Starting `lab` with 1 GPU" in str(answer["view"])
    (request,) = await here.queued()
    assert (request.name, request.image, request.gpus, request.request_id) == ("lab", "code", 1, "V9")


async def test_form_offers_the_profiles_where_some_are_configured(redis):
    here = Place(redis, replace(CONFIGURED, profiles=(Profile(name="1xa100", gpus=1),)))
    await here.types("")
    (menu,) = [each for each in here.views[0]["blocks"] if each.get("block_id") == "profile"]
    assert [each["value"] for each in menu["element"]["options"]] == ["-", "1xa100"]
    await _submitted(here.context, submitted(name="a", profile="-"))
    answer = await _submitted(here.context, submitted(name="b", gpus="0", profile="1xa100"))
    assert answer["errors"].keys() == {"gpus"}
    await _submitted(here.context, submitted(name="b", gpus="1", profile="1xa100"))
    assert [each.profile for each in await here.queued()] == ["", "1xa100"]


async def test_error_in_the_form_is_shown_below_its_field(here):
    answer = await _submitted(here.context, submitted(home="5PB"))
    assert answer["errors"].keys() == {"home"}
    answer = await _submitted(here.context, submitted(name="A B"))
    assert answer["errors"].keys() == {"name"}
    assert await here.queued() == []


async def test_open_shows_an_empty_modal_at_once_and_a_worker_fills_it(here):
    assert await here.types("open lab") == ""
    (request,) = await here.queued()
    assert (request.verb, request.view) == (Verb.OPEN, "V1")
    assert "Loading…" in str(here.views[0])


async def test_home_is_deleted_only_after_its_name_was_typed(here):
    assert await here.types("delete home lab") == ""
    assert await here.queued() == []
    for typed, count in (("other", 0), ("lab", 1)):
        state = {"values": {"typed": {"value": {"value": typed}}}}
        body = {"view": {"private_metadata": "lab", "state": state}, "user": {"id": OWNER}}
        await _delete_home(here.context, body)
        assert len(await here.queued()) == count


async def test_env_without_configuration_or_permission_is_refused(redis):
    assert "Environments aren't configured." in await Place(redis, CONFIG).types("start")
    config = replace(CONFIGURED, launch=Launch(people=("UADA",)))
    place = Place(redis, config)
    for text in ("start lab", ""):
        assert (await place.types(text)).startswith("You don't have permission to start environments.")
    assert await place.queued() == place.views == []


@pytest.mark.parametrize("value", ["", "../x", "a" * 31, "lab; rm", "Lab"])
async def test_forged_button_value_is_ignored(value):
    assert not await names_an_environment({"value": value})


@pytest.mark.parametrize("text", ["start lab", "stop lab"])
async def test_killed_server_and_emptied_redis_lose_no_request(here, redis, text):
    context = here.context
    await assert_not_lost(redis, context, str(ITEM), lambda _: answer_env(context, command_of(text), None))
