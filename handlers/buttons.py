"""Handle buttons: a click queues a command; a worker applies it to the sweep's current state."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond
from slack_sdk.web.async_client import AsyncWebClient

from bot.answers.messages import CANCEL_TRIAL, loading
from bot.core.commands import Action, Command
from bot.core.ids import SWEEP_ID
from bot.messages import parent
from bot.slack.inputs import user_name
from handlers.context import ACK_TIMEOUT, SLACK_ERRORS, HandlerContext, unconfirmed
from handlers.home_tab import Show

log = logging.getLogger(__name__)

NOT_SHOWN = "Couldn't load the trials. Try again."

Handler = Callable[..., Awaitable[None]]
DOUBLE_CLICK = timedelta(seconds=10)  # clicks on Rerun within this time count as one
BUTTONS = {
    parent.CANCEL: Action.CANCEL,
    parent.LOGS: Action.LOGS,
    parent.RESULTS: Action.RESULTS,
    parent.RERUN: Action.RERUN,
    parent.OPEN_GATE: Action.OPEN,
    parent.EXTEND: Action.EXTEND,
    parent.PAUSE: Action.PAUSE,
    parent.PAUSE_NOW: Action.PAUSE_NOW,
    parent.RESUME: Action.RESUME,
    parent.RETRY_FIRST: Action.RETRY,
}


def add_buttons(app: AsyncApp, context: HandlerContext, show: Show) -> None:
    for action_id, action in BUTTONS.items():
        app.action(action_id, matchers=[names_a_sweep])(_on_click(context, action, show))
    app.action(parent.TRIALS, matchers=[names_a_sweep])(_on_trials(context))
    app.action(CANCEL_TRIAL, matchers=[names_a_trial])(_on_cancel_trial(context))


async def names_a_sweep(action: dict[str, Any]) -> bool:
    """Ignore forged values: they would name an arbitrary queue item."""
    return bool(SWEEP_ID.fullmatch(action.get("value", "")))


async def names_a_trial(action: dict[str, Any]) -> bool:
    return bool(SWEEP_ID.fullmatch(action.get("value", "").partition(" ")[0]))


def _on_click(context: HandlerContext, act: Action, show: Show) -> Handler:
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
                await context.send(action["value"], _command(body, act, **rerun))
        except (RedisError, TimeoutError) as error:
            log.exception("failed to queue a button click")
            if body.get("response_url"):  # the home tab has none
                await respond(text=unconfirmed(error), response_type="ephemeral", replace_original=False)
        else:
            if body.get("view", {}).get("type") == "home":  # Slack doesn't refresh it
                await show(client, body["user"]["id"], action["value"])
        await ack()

    return click


async def _is_one_click(context: HandlerContext, body: dict[str, Any], sweep: str) -> bool:
    """Return False for a double click, which would start two sweeps: each click has its own id."""
    async with asyncio.timeout(ACK_TIMEOUT):
        return await context.store.is_new(f"rerun/{body['user']['id']}/{sweep}", DOUBLE_CLICK)


def _on_trials(context: HandlerContext) -> Callable[..., Awaitable[None]]:
    """Open the modal at once, because Slack allows 3 seconds; a worker fills it."""

    async def trials(
        ack: AsyncAck,
        client: AsyncWebClient,
        respond: AsyncRespond,
        body: dict[str, Any],
        action: dict[str, Any],
    ) -> None:
        try:
            async with asyncio.timeout(ACK_TIMEOUT):
                opened = await client.views_open(trigger_id=body["trigger_id"], view=loading("Loading…"))
                await context.send(action["value"], _command(body, Action.TRIALS, view=opened["view"]["id"]))
        except (RedisError, *SLACK_ERRORS):
            log.exception("failed to show trials")
            await respond(text=NOT_SHOWN, response_type="ephemeral", replace_original=False)
        await ack()

    return trials


def _on_cancel_trial(context: HandlerContext) -> Callable[..., Awaitable[None]]:
    """Cancel a trial from the modal of trials, and update the modal."""

    async def cancel_trial(ack: AsyncAck, body: dict[str, Any], action: dict[str, Any]) -> None:
        sweep, _, trial = action["value"].partition(" ")
        try:
            await context.send(sweep, _command(body, Action.KILL, trial=trial))
            await context.send(sweep, _command(body, Action.TRIALS, view=body["view"]["id"]))
        except (RedisError, TimeoutError):
            log.exception("failed to queue a button click")
        await ack()

    return cancel_trial


def _command(body: dict[str, Any], act: Action, **more: Any) -> Command:
    user, place = body["user"], body.get("container", {})
    # A response_url can't post to a thread; its ts is in the container or else in the message.
    thread = place.get("thread_ts") or body.get("message", {}).get("thread_ts")
    in_thread = bool(thread) and thread != place.get("message_ts")
    return Command(
        action=act,
        user=user["id"],
        user_name=user_name(user),
        response_url="" if in_thread else body.get("response_url", ""),
        in_thread=in_thread,
        clicked="" if in_thread else _clicked_message(place),
        **more,
    )


def _clicked_message(place: dict[str, Any]) -> str:
    """Return channel and ts of the clicked message; "" for a modal, the home tab, or an ephemeral message."""
    is_public = place.get("type") == "message" and not place.get("is_ephemeral")
    return f"{place['channel_id']} {place['message_ts']}" if is_public else ""
