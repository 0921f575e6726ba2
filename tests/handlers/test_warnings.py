"""Buttons under a warning through Bolt's own dispatch: queued in the right mailbox, then acknowledged."""

import pytest
from redis.exceptions import ConnectionError as RedisDown
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.models import Act
from bot.queue import Queue
from bot.store import Store
from bot.told import ITEM
from bot.warning import CANCEL, CANCEL_MANY, KEEP_4, KEEP_24, MEASURES
from handlers import warnings
from handlers.door import UNREACHABLE
from local.slack import serve
from local.slack.workspace import TEAM

NOTICE = "idle/sweeps/lr-brave-otter-x"


@pytest.fixture
async def slack():
    slack = await serve()
    yield slack
    await slack.close()


class Door:
    def __init__(self, redis):
        self.store, self.queue, self.down = Store(redis), Queue(redis), False

    async def ask(self, mailbox, ask):
        if self.down:
            raise RedisDown
        await self.store.ask(mailbox, ask)
        await self.queue.add(mailbox)


@pytest.fixture
def door(redis):
    return Door(redis)


@pytest.fixture
def app(slack, door):
    web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    app = AsyncApp(client=web, process_before_response=True)
    warnings.register(app, door)
    return app


def a_click(action, value, response_url="https://hooks/2"):
    body = {
        "type": "block_actions",
        "user": {"id": "U1", "username": "ada", "team_id": TEAM["id"]},
        "team": {"id": TEAM["id"]},
        "channel": {"id": "C1"},
        "response_url": response_url,
        "trigger_id": "trigger-2",
        "actions": [{"action_id": action, "block_id": "b", "type": "button", "value": value}],
    }
    return AsyncBoltRequest(mode="socket_mode", body=body)


@pytest.mark.parametrize(("action", "hours"), [(KEEP_4, 4), (KEEP_24, 24)])
async def test_keep_goes_to_the_watch_on_gpus(app, door, action, hours):
    assert (await app.async_dispatch(a_click(action, NOTICE))).status == 200
    [ask] = await door.store.asks(ITEM)
    assert (ask.act, ask.user, ask.notice, ask.hours) == (Act.KEEP, "U1", NOTICE, hours)
    assert (await door.queue.get(wait=0)).item == ITEM


async def test_what_was_measured_is_asked_there_too(app, door):
    await app.async_dispatch(a_click(MEASURES, NOTICE))
    [ask] = await door.store.asks(ITEM)
    assert (ask.act, ask.notice, ask.response_url) == (Act.MEASURES, NOTICE, "https://hooks/2")


async def test_a_trial_is_ended_by_its_sweep(app, door):
    await app.async_dispatch(a_click(CANCEL, "lr-brave-otter x"))
    [ask] = await door.store.asks("lr-brave-otter")
    assert (ask.act, ask.trial, ask.user, ask.in_thread) == (Act.KILL, "x", "U1", True)
    assert (await door.queue.get(wait=0)).item == "lr-brave-otter"


async def test_many_are_looked_at_anew_before_they_are_ended(app, door):
    await app.async_dispatch(a_click(CANCEL_MANY, f"{NOTICE} x y"))
    [ask] = await door.store.asks(ITEM)
    assert (ask.act, ask.notice, ask.trial, ask.delivery) == (Act.KILL, NOTICE, "x y", "trigger-2")
    assert await door.store.asks("lr-brave-otter") == []
    assert (await door.queue.get(wait=0)).item == ITEM


async def test_a_click_that_can_t_be_queued_is_told(app, door, monkeypatch):
    said = []

    async def send(_, *, text="", **__):
        said.append(text)

    monkeypatch.setattr("slack_sdk.webhook.async_client.AsyncWebhookClient.send", send)
    monkeypatch.setattr("slack_bolt.context.respond.async_respond.AsyncRespond.__call__", send)
    door.down = True
    assert (await app.async_dispatch(a_click(KEEP_4, NOTICE))).status == 200
    assert said == [UNREACHABLE]
