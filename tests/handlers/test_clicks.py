"""Clicks on buttons through Bolt's own dispatch: queued durably, then acknowledged."""

import asyncio
import itertools
from dataclasses import replace

import pytest
from aiohttp import ClientConnectionError
from redis.exceptions import ConnectionError as RedisDown
from slack_bolt.context.respond.async_respond import AsyncRespond
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action
from bot.core.record import Phase
from bot.sweep.answers.messages import CANCEL_TRIAL
from bot.sweep.decisions.parent_message import RERUN, TRIALS
from bot.sweep.launch.command_line import changed
from bot.sweep.model.texts import CANCEL, CONTINUE
from bot.watch.home.view import NEW_SWEEP
from bot.watch.idle.messages import CANCEL_IDLE as WARNED
from handlers.any_wording import RUN
from handlers.buttons import NOT_SHOWN
from handlers.launch_form import NOT_OPENED
from tests.bot.factories import CONFIG, REQUEST, a_sweep
from tests.handlers.factories import a_click


async def test_home_tab_click_is_acknowledged_while_the_queue_is_unreachable(app, context, monkeypatch):
    async def down(*_, **__):
        raise RedisDown

    monkeypatch.setattr(context.store, "add_command", down)
    click = a_click("lr-a-b", view={"id": "V1", "type": "home"}, container={"type": "view", "view_id": "V1"})
    del click.body["response_url"], click.context["response_url"]
    assert (await app.async_dispatch(click)).status == 200


async def test_double_click_on_rerun_is_one_sweep(app, context, redis):
    for trigger, user in (("t1", "U1"), ("t2", "U1"), ("t3", "U2")):
        click = a_click("lr-a-b")
        click.body["actions"][0]["action_id"] = RERUN
        click.body["trigger_id"], click.body["user"]["id"] = trigger, user
        assert (await app.async_dispatch(click)).status == 200
    assert [command.request_id for command in await context.store.commands("lr-a-b")] == ["t1", "t3"]
    assert 0 < await redis.ttl("sweepbot:request:rerun/U1/lr-a-b") <= 10
    assert len(context.unconfirmed._open) == 2  # the dropped click isn't stored after a loss, either


async def test_double_click_on_an_offered_command_is_one_request(app, context, monkeypatch):
    async def respond(*_, **__): ...

    monkeypatch.setattr(AsyncRespond, "__call__", respond)
    for trigger, user in (("t1", "U1"), ("t2", "U1"), ("t3", "U2")):
        click = a_click("/sweep queue raise lr-a-b")
        click.body["actions"][0]["action_id"], click.body["container"] = RUN, {"message_ts": "2.0"}
        click.body["trigger_id"], click.body["user"]["id"] = trigger, user
        assert (await app.async_dispatch(click)).status == 200
    commands = await context.store.commands("lr-a-b")
    assert [(each.action, each.user) for each in commands] == [(Action.RAISE, "U1"), (Action.RAISE, "U2")]


async def test_second_click_on_rerun_counts_if_the_first_could_not_be_stored(app, context, monkeypatch):
    async def dropped(*_, **__):
        raise RedisDown

    for number in (1, 2):
        click = a_click("lr-a-b")
        click.body["actions"][0]["action_id"], click.body["trigger_id"] = RERUN, f"t{number}"
        del click.body["response_url"], click.context["response_url"]
        with monkeypatch.context() as patch:
            if number == 1:
                patch.setattr(context.store, "add_request", dropped)
            await app.async_dispatch(click)
    assert [command.request_id for command in await context.store.commands("lr-a-b")] == ["t2"]


@pytest.mark.parametrize("where", ["container", "message"])
async def test_thread_click_is_answered_in_the_thread(app, context, where):
    places = {
        "container": {"type": "message", "message_ts": "2.0", "channel_id": "C1"},
        "message": {"ts": "2.0"},
    }
    places[where]["thread_ts"] = "1.0"
    await app.async_dispatch(a_click("lr-a-b", **places))
    [command] = await context.store.commands("lr-a-b")
    assert (command.in_thread, command.response_url) == (True, "")


@pytest.mark.parametrize(
    ("action", "value"),
    [
        *itertools.product(
            [CANCEL, TRIALS, CANCEL_TRIAL, WARNED], ["../../x", "watch: gpus", "", "lr-a-b/../../x"]
        ),
        *itertools.product([CANCEL, TRIALS], ["doctor: now"]),
    ],
)
async def test_forged_button_value_queues_nothing(app, context, action, value):
    click = a_click(value, container={"type": "view"}, view={"id": "V1", "type": "modal"})
    click.body["actions"][0]["action_id"] = action
    assert (await app.async_dispatch(click)).status == 404
    assert await context.queue.get(wait=0) is None
    assert await context.store.commands(value) == []


async def test_slow_slack_does_not_delay_a_click(app, slack, context, monkeypatch):
    async def slow(*_, **__):
        await asyncio.sleep(60)

    monkeypatch.setattr("handlers.launch_form.ACK_TIMEOUT", 0.1)
    monkeypatch.setattr(AsyncWebClient, "views_update", slow)
    view = {
        "id": "V1",
        "hash": "1.a",
        "private_metadata": '{"channel": "C1", "inline": false, "options": {}}',
    }
    click = a_click("", view=view)
    click.body["actions"][0]["action_id"] = "sweep_write"
    async with asyncio.timeout(5):
        assert (await app.async_dispatch(click)).status == 200


async def test_form_rejected_from_the_home_tab_is_reported_directly(app, context, monkeypatch):
    reported = []

    async def away(*_, **__):
        raise ClientConnectionError

    async def receive(_, channel, text):
        reported.append((channel, text))

    monkeypatch.setattr(AsyncWebClient, "views_open", away)
    monkeypatch.setattr(AsyncWebClient, "chat_postMessage", receive)
    click = a_click("", view={"id": "V1", "type": "home"}, container={"type": "view", "view_id": "V1"})
    click.body["actions"][0]["action_id"] = NEW_SWEEP
    assert (await app.async_dispatch(click)).status == 200
    await context.background.finish(5)
    assert reported == [("U1", NOT_OPENED)]


async def test_trials_modal_that_slack_rejects_is_reported(app, monkeypatch):
    reported = []

    async def receive(_, text, **__):
        reported.append(text)

    monkeypatch.setattr(AsyncRespond, "__call__", receive)
    click = a_click("lr-a-b")  # an invalid trigger id
    click.body["actions"][0]["action_id"] = TRIALS
    assert (await app.async_dispatch(click)).status == 200
    assert reported == [NOT_SHOWN]


async def test_click_is_stored_in_the_sweeps_mailbox(app, context):
    sweep = a_sweep(Phase.RUNNING)
    await context.store.create(sweep, [sweep.id], sweep.request_id)
    response = await app.async_dispatch(a_click(sweep.id))
    [command] = await context.store.commands(sweep.id)
    assert (response.status, command.action, command.user, command.response_url) == (
        200,
        "cancel",
        "U1",
        "https://hooks/2",
    )
    assert (await context.queue.get(wait=0)).item.key == sweep.id


async def test_click_starts_the_sweep_again_within_the_bounds_once_for_each(app, context):
    for number, bounds in enumerate(("layers<3", "layers<3", "optimizer!=sgd")):
        click = a_click(f"lr-a-b {bounds}")
        click.body["actions"][0]["action_id"], click.body["trigger_id"] = CONTINUE, f"t{number}"
        assert (await app.async_dispatch(click)).status == 200
    requests = [changed(REQUEST, each.changes, CONFIG) for each in await context.store.commands("lr-a-b")]
    assert requests == [replace(REQUEST, where=where) for where in ("layers<3", "optimizer!=sgd")]
