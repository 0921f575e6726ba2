"""Users of other Slack workspaces, and guests, are rejected before any handler runs."""

from dataclasses import replace

import pytest
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.sweep.form.view import BRANCH_MENU, FORM
from bot.sweep.model.texts import CANCEL
from handlers.app import build
from local.slack.workspace import ADA, TEAM
from tests.bot.factories import ADMIN, CONFIG
from tests.handlers.factories import a_context

AWAY = "Sweepbot can't be used from another Slack workspace (`T0PARTNER`)."
OURS, THEIRS, GRID = TEAM["id"], "T0PARTNER", "E0PARTNER"


def command(team, user, text="branch=main space=lr"):
    who = {"user_id": user, "user_name": "mallory", "team_id": team, "channel_id": "C1"}
    return who | {"command": "/sweep", "text": text, "trigger_id": "t", "response_url": "https://hooks/1"}


def interaction(kind, team, user, **more):
    """In a Slack Connect channel, the user's team can differ from the channel's."""
    who = {"id": user, "username": "mallory", "team_id": team}
    return {"type": kind, "user": who, "team": {"id": OURS}, "trigger_id": "t", **more}


def click(team, user):
    button = {"type": "button", "action_id": CANCEL, "value": "lr-brave-otter", "block_id": "b"}
    return interaction("block_actions", team, user, actions=[button], channel={"id": "C1"})


def mention(team, user, **more):
    event = {
        "type": "app_mention",
        "user": user,
        "team": team,
        "text": "<@U1> list",
        "channel": "C1",
        "ts": "1",
    }
    about = {"type": "event_callback", "event_id": "Ev1", "team_id": OURS, "is_ext_shared_channel": True}
    return about | {"event": event | more}


VIEW = {"id": "V1", "type": "modal", "callback_id": FORM, "state": {"values": {}}, "private_metadata": "{}"}
REQUESTS = {
    "a command": command(THEIRS, ADA.id),
    "a question about GPUs": command(THEIRS, ADA.id, "") | {"command": "/gpus"},
    "a click": click(THEIRS, ADA.id),
    "a form": interaction("view_submission", THEIRS, ADA.id, view=VIEW),
    "a menu": interaction("block_suggestion", THEIRS, ADA.id, action_id=BRANCH_MENU, value="m", view=VIEW),
    "a mention": mention(THEIRS, ADA.id),
    "a mention, by the user's team": mention(OURS, ADA.id, user_team=THEIRS),
    "a mention from a Grid": mention(OURS, ADA.id, user_team=GRID),
}


class Place:
    def __init__(self, redis, slack, **config):
        self.context = a_context(redis, config=replace(CONFIG, **config))
        self.web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        self.app = build(self.web, self.context)

    async def sends(self, body):
        answer = await self.app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
        assert answer.status == 200
        return str(answer.body)


async def kept(redis):
    """Return everything stored for a worker or for later."""
    return [key async for key in redis.scan_iter()]


async def test_denial_of_a_mention_in_a_thread_is_shown_there(redis, slack, monkeypatch):
    here, shown = Place(redis, slack), []

    async def post(_, **arguments):
        shown.append((arguments["channel"], arguments["thread_ts"]))

    monkeypatch.setattr(AsyncWebClient, "chat_postEphemeral", post)
    await here.sends(mention(THEIRS, ADA.id, thread_ts="1"))
    await here.sends(mention(THEIRS, ADA.id))
    assert shown == [("C1", "1"), ("C1", None)]


@pytest.mark.parametrize("way", REQUESTS)
async def test_other_workspace_is_rejected_and_stores_nothing(redis, slack, way, caplog):
    caplog.set_level("INFO")
    here = Place(redis, slack)
    message = await here.sends(REQUESTS[way])
    assert ("another Slack workspace" in message) == (way in {"a command", "a question about GPUs", "a form"})
    assert await kept(redis) == []
    assert f"user={ADA.id} workspace=" in caplog.text
    assert "result=rejected" in caplog.text


async def test_other_workspace_is_told_the_reason_and_whom_to_ask(redis, slack):
    message = await Place(redis, slack).sends(command(THEIRS, ADA.id))
    assert AWAY in message
    assert f"*Fix:* Ask <@{ADMIN}> to add yours to `workspaces:`." in message


@pytest.mark.parametrize(
    ("body", "config"),
    [
        (command(OURS, ADA.id), {}),
        (command(THEIRS, ADA.id), {"workspaces": (THEIRS,)}),
        (command(THEIRS, ADA.id) | {"enterprise_id": GRID}, {"workspaces": (GRID,)}),
        (click(THEIRS, ADA.id) | {"team": {"id": THEIRS, "enterprise_id": GRID}}, {"workspaces": (GRID,)}),
        (
            click(THEIRS, ADA.id) | {"team": {"id": THEIRS}, "enterprise": {"id": GRID}},
            {"workspaces": (GRID,)},
        ),
        (command(THEIRS, ADMIN), {}),
        (command(THEIRS, ADA.id), {"launch": replace(CONFIG.launch, people=(ADA.id,))}),
        (click(OURS, ADA.id), {}),
        (mention(OURS, ADA.id), {}),
        (mention(OURS, ADA.id, user_team=OURS), {}),
        (mention(OURS, ADA.id, type="message", subtype="file_share", text="branch=main space=lr"), {}),
        (mention(OURS, ADA.id, type="message", subtype="thread_broadcast", text="branch=main space=lr"), {}),
    ],
)
async def test_own_and_configured_workspaces_are_accepted(redis, slack, body, config):
    await Place(redis, slack, **config).sends(body)
    assert await kept(redis) != []


class Guest:
    """users.info of a workspace with guests only."""

    def __init__(self):
        self.asked = 0

    async def users_info(self, *, user):
        self.asked += 1
        return {"user": {"id": user, "is_restricted": True}}


@pytest.fixture
def all_users_are_guests(monkeypatch):
    guest = Guest()
    monkeypatch.setattr(AsyncWebClient, "users_info", lambda _, **given: guest.users_info(**given))
    return guest


async def test_guests_are_rejected_with_one_lookup(redis, slack, all_users_are_guests):
    here = Place(redis, slack)
    for _ in range(2):
        assert "Guests can't use Sweepbot here. *Fix:* Ask" in await here.sends(command(OURS, ADA.id))
    assert all_users_are_guests.asked == 1
    assert await kept(redis) == []


async def test_guest_gets_a_home_tab_with_a_sentence(redis, slack, all_users_are_guests):
    body = mention(OURS, ADA.id, type="app_home_opened", tab="home")
    await Place(redis, slack).sends(body)
    assert "Guests can't use Sweepbot here." in str(slack.views.homes[ADA.id])


@pytest.mark.parametrize(("config", "user"), [({"guests": True}, ADA.id), ({}, ADMIN)])
async def test_configured_guests_are_accepted(redis, slack, all_users_are_guests, config, user):
    assert "queued." in str(await Place(redis, slack, **config).sends(command(OURS, user))) or await kept(
        redis
    )
    assert all_users_are_guests.asked == 0


async def test_members_are_accepted_while_slack_does_not_answer(redis, slack):
    slack.stumble("users.info", "internal_error")
    await Place(redis, slack).sends(command(OURS, ADA.id))
    assert await kept(redis) != []
