"""While Redis is away or slow, each click and form is answered where it was made, and the log names it."""

from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as RedisDown
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.config.environments import ServiceConfig
from bot.sweep.channels.views import SETUP_FORM, TEAM_CHOICE
from bot.sweep.features.approval.decide import DECLINE
from bot.sweep.model.texts import CANCEL
from bot.workspace_table import add_handlers
from bot.workspaces.environments import message
from bot.workspaces.environments.form import DELETE_HOME_FORM, FORM
from bot.workspaces.services.form import SERVICE_FORM
from handlers.app import build
from handlers.context import LATE, UNREACHABLE
from local.slack.workspace import TEAM
from tests.bot.factories import ADMIN, CONFIG
from tests.bot.workspaces.environments.world import ENVIRONMENTS
from tests.handlers.factories import a_click, a_context

CONFIGURED = replace(
    CONFIG, environments=replace(ENVIRONMENTS, services=ServiceConfig(images=("ghcr.io/lab/",)))
)
SERVICE = {"name": "llm", "image": "ghcr.io/lab/llm:3", "port": "8000"}
EMPTY = dict.fromkeys(("replicas", "gpus", "cpu", "memory", "command", "more"))
SETUP = {key: {"selected_option": None} for key in ("namespace", "team", "hour", "zone")}


def clicked(action, value, **more):
    click = a_click(value, container={"type": "message", "channel_id": "C1", "message_ts": "1.0"})
    click.body["actions"][0] |= {"action_id": action} | more
    return click.body


def form(callback, hidden, blocks):
    state = {"values": {key: {"value": entered, key: entered} for key, entered in blocks.items()}}
    view = {"id": "V1", "type": "modal", "callback_id": callback, "private_metadata": hidden, "state": state}
    who = {"id": ADMIN, "username": "ada", "team_id": TEAM["id"]}
    return {"type": "view_submission", "user": who, "team": {"id": TEAM["id"]}, "view": view}


def texts(**blocks):
    return {key: {"value": text} for key, text in blocks.items()}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (clicked(CANCEL, "lr-brave-otter"), "a button click"),
        (clicked(message.STOP, "lab"), "an env click"),
        (clicked(TEAM_CHOICE, "", selected_option={"value": "vision"}), "a setup"),
        (form(SETUP_FORM, "C1", SETUP | {"repo": {"selected_option": {"value": "digits"}}}), "a setup"),
        (form(DECLINE, "lr-brave-otter", texts(reason="no")), "a reason"),
        (form(FORM, "C1", texts(name="lab", image="", gpus="", size="", home="")), "an env form"),
        (form(DELETE_HOME_FORM, "lab", texts(typed="lab")), "a home deletion"),
        (form(SERVICE_FORM, "C1", texts(**EMPTY | SERVICE)), "a service form"),
    ],
)
@pytest.mark.parametrize(("error", "told"), [(RedisDown, UNREACHABLE), (TimeoutError, LATE)])
async def test_request_that_cannot_be_stored_is_told_and_logged(
    redis, slack, monkeypatch, caplog, body, what, error, told
):
    replies = []

    async def reply(_, *, text, response_type, replace_original):
        replies.append((text, response_type, replace_original))

    async def fail(*_, **__):
        raise error

    monkeypatch.setattr("slack_bolt.context.respond.async_respond.AsyncRespond.__call__", reply)
    context = a_context(redis, config=CONFIGURED)
    monkeypatch.setattr(context.store, "add_request", fail)
    monkeypatch.setattr(context.store, "add_command", fail)
    app = build(AsyncWebClient(token=slack.bot_token, base_url=slack.api_url), context, add_handlers)
    answer = await app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
    assert answer.status == 200
    if body["type"] == "view_submission":
        assert told in answer.body
    else:
        assert replies == [(told, "ephemeral", False)]
    assert f"failed to store {what}" in caplog.messages
