"""Buttons: a click becomes an ask in the sweep's mailbox; its next turn decides, by the state it finds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action, Command
from bot.core.ids import SWEEP_ID
from bot.sweeps import parent_message
from bot.sweeps.reply_messages import CANCEL_TRIAL, loading
from handlers.context import NOT_SAID, PATIENCE, HandlerContext, unconfirmed
from handlers.home_tab import Show

log = logging.getLogger(__name__)

NOT_SHOWN = "The trials can't be shown right now. Please press the button again."

Handler = Callable[..., Awaitable[None]]
TWICE = timedelta(seconds=10)  # between two clicks that are meant as two
BUTTONS = {
    parent_message.CANCEL: Action.CANCEL,
    parent_message.LOGS: Action.LOGS,
    parent_message.RESULTS: Action.RESULTS,
    parent_message.RERUN: Action.RERUN,
}


def add_buttons(app: AsyncApp, context: HandlerContext, show: Show) -> None:
    for action_id, act in BUTTONS.items():
        app.action(action_id, matchers=[names_a_sweep])(on_click(context, act, show))
    app.action(parent_message.TRIALS, matchers=[names_a_sweep])(on_trials(context))
    app.action(CANCEL_TRIAL, matchers=[names_a_trial])(on_end(context))


async def names_a_sweep(action: dict[str, Any]) -> bool:
    """A value that Sweepbot never wrote is left unanswered: as a mailbox it could be anything."""
    return bool(SWEEP_ID.fullmatch(action.get("value", "")))


async def names_a_trial(action: dict[str, Any]) -> bool:
    return bool(SWEEP_ID.fullmatch(action.get("value", "").partition(" ")[0]))


def on_click(context: HandlerContext, act: Action, show: Show) -> Handler:
    async def click(
        ack: AsyncAck,
        client: AsyncWebClient,
        respond: AsyncRespond,
        body: dict[str, Any],
        action: dict[str, Any],
    ) -> None:
        rerun = {"request_id": body["trigger_id"]} if act is Action.RERUN else {}
        try:
            if not rerun or await _is_one_click(context, body, action["value"]):
                await context.send(action["value"], _ask(body, act, **rerun))
        except (RedisError, TimeoutError) as error:
            log.exception("a click could not be queued")
            if body.get("response_url"):  # the home tab has none
                await respond(text=unconfirmed(error), response_type="ephemeral", replace_original=False)
        else:
            if body.get("view", {}).get("type") == "home":  # it shows what is, only when it is shown again
                await show(client, body["user"]["id"], action["value"])
        await ack()

    return click


async def _is_one_click(context: HandlerContext, body: dict[str, Any], sweep: str) -> bool:
    """Each click has an id of its own: a double one would be two more sweeps."""
    async with asyncio.timeout(PATIENCE):
        return await context.store.is_new(f"rerun/{body['user']['id']}/{sweep}", TWICE)


def on_trials(context: HandlerContext) -> Callable[..., Awaitable[None]]:
    """The modal is opened at once, for Slack allows three seconds; the sweep's turn fills it."""

    async def trials(
        ack: AsyncAck,
        client: AsyncWebClient,
        respond: AsyncRespond,
        body: dict[str, Any],
        action: dict[str, Any],
    ) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                opened = await client.views_open(trigger_id=body["trigger_id"], view=loading("Looking…"))
                await context.send(action["value"], _ask(body, Action.TRIALS, view=opened["view"]["id"]))
        except (RedisError, *NOT_SAID):
            log.exception("trials could not be shown")
            await respond(text=NOT_SHOWN, response_type="ephemeral", replace_original=False)
        await ack()

    return trials


def on_end(context: HandlerContext) -> Callable[..., Awaitable[None]]:
    """In that modal: the trial is to end, and the modal to show it."""

    async def end(ack: AsyncAck, body: dict[str, Any], action: dict[str, Any]) -> None:
        sweep, _, trial = action["value"].partition(" ")
        try:
            await context.send(sweep, _ask(body, Action.KILL, trial=trial))
            await context.send(sweep, _ask(body, Action.TRIALS, view=body["view"]["id"]))
        except (RedisError, TimeoutError):
            log.exception("a click could not be queued")
        await ack()

    return end


def _ask(body: dict[str, Any], act: Action, **more: Any) -> Command:
    user, place = body["user"], body.get("container", {})
    # A response_url does not lead into a thread, which is named in the message where not in the container.
    thread = place.get("thread_ts") or body.get("message", {}).get("thread_ts")
    in_thread = bool(thread) and thread != place.get("message_ts")
    return Command(
        action=act,
        user=user["id"],
        user_name=user.get("username") or user.get("name", ""),
        response_url="" if in_thread else body.get("response_url", ""),
        in_thread=in_thread,
        clicked="" if in_thread else _message(place),
        **more,
    )


def _message(place: dict[str, Any]) -> str:
    """Of a message that all can see; a modal, the home tab and a private answer are none."""
    seen = place.get("type") == "message" and not place.get("is_ephemeral")
    return f"{place['channel_id']} {place['message_ts']}" if seen else ""
