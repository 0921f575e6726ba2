"""Buttons under a warning through Bolt's own dispatch: queued in the right mailbox, then acknowledged."""

import pytest
from redis.exceptions import ConnectionError as RedisDown
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action
from bot.core.work_item import WorkItem
from bot.measure.gpus.command import ASK_OWNER
from bot.measure.gpus.models import ITEM
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.watch.idle.messages import CANCEL_IDLE, CANCEL_IDLE_GROUP, NEEDED, SNOOZE_4, SNOOZE_24, UTILIZATION
from handlers.buttons import add_idle_buttons
from handlers.context import UNREACHABLE
from local.slack.workspace import TEAM

NOTICE = "idle/sweeps/lr-brave-otter-x"


class HandlerContext:
    def __init__(self, redis):
        self.store, self.queue, self.down = Store(redis), Queue(redis), False

    async def send(self, mailbox, command):
        if self.down:
            raise RedisDown
        await self.store.add_command(mailbox, command)
        await self.queue.add(WorkItem.parse(mailbox))


@pytest.fixture
def context(redis):
    return HandlerContext(redis)


@pytest.fixture
def app(slack, context):
    web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    app = AsyncApp(client=web, process_before_response=True)
    add_idle_buttons(app, context)
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


@pytest.mark.parametrize(("action", "hours"), [(SNOOZE_4, 4), (SNOOZE_24, 24), (NEEDED, 24)])
async def test_snooze_is_queued_for_the_monitor(app, context, action, hours):
    assert (await app.async_dispatch(a_click(action, NOTICE))).status == 200
    [command] = await context.store.commands(str(ITEM))
    assert (command.action, command.user, command.alert, command.hours) == (Action.KEEP, "U1", NOTICE, hours)
    assert (await context.queue.get(wait=0)).item == ITEM


async def test_utilization_is_requested_from_the_monitor(app, context):
    await app.async_dispatch(a_click(UTILIZATION, NOTICE))
    [command] = await context.store.commands(str(ITEM))
    assert (command.action, command.alert, command.response_url) == (
        Action.MEASURES,
        NOTICE,
        "https://hooks/2",
    )


async def test_question_to_an_owner_is_queued_for_the_monitor(app, context):
    await app.async_dispatch(a_click(ASK_OWNER, "vision/notebook vision/b"))
    [command] = await context.store.commands(str(ITEM))
    assert (command.action, command.user, command.alert) == (Action.ASK, "U1", "vision/notebook vision/b")
    assert (await context.queue.get(wait=0)).item == ITEM


async def test_cancel_of_one_trial_goes_to_its_sweep(app, context):
    await app.async_dispatch(a_click(CANCEL_IDLE, "lr-brave-otter x"))
    [command] = await context.store.commands("lr-brave-otter")
    assert (command.action, command.trial, command.user, command.in_thread) == (Action.KILL, "x", "U1", True)
    assert (await context.queue.get(wait=0)).item.key == "lr-brave-otter"


async def test_cancel_of_many_trials_is_checked_by_the_monitor(app, context):
    await app.async_dispatch(a_click(CANCEL_IDLE_GROUP, f"{NOTICE} x y"))
    [command] = await context.store.commands(str(ITEM))
    assert (command.action, command.alert, command.trial, command.request_id) == (
        Action.KILL,
        NOTICE,
        "x y",
        "trigger-2",
    )
    assert await context.store.commands("lr-brave-otter") == []
    assert (await context.queue.get(wait=0)).item == ITEM


async def test_click_that_cannot_be_queued_is_reported(app, context, monkeypatch):
    replies = []

    async def send(_, *, text="", **__):
        replies.append(text)

    monkeypatch.setattr("slack_sdk.webhook.async_client.AsyncWebhookClient.send", send)
    monkeypatch.setattr("slack_bolt.context.respond.async_respond.AsyncRespond.__call__", send)
    context.down = True
    assert (await app.async_dispatch(a_click(SNOOZE_4, NOTICE))).status == 200
    assert replies == [UNREACHABLE]
