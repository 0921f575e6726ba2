"""Handle buttons: a click queues a command; a worker applies it to the current state. Some, such as Decline,
ask for a reason first: a modal with one line, whose submission queues the command.

Below messages about idle GPUs, cancelling one trial goes to its sweep, everything else to the GPU monitor.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action, Command
from bot.core.ids import SWEEP_ID
from bot.measure.gpus.command import ASK_OWNER
from bot.measure.gpus.models import ITEM
from bot.platform.slack.blocks import form_modal, input_block, text_box, user_name, value_of
from bot.sweep.answers.messages import CANCEL_TRIAL, loading
from bot.sweep.decisions import parent_message as parent
from bot.sweep.decisions.commands import RULES
from bot.sweep.model.texts import CONTINUE
from bot.watch.idle.messages import (
    CANCEL_IDLE,
    CANCEL_IDLE_GROUP,
    NEEDED,
    NEEDED_HOURS,
    SNOOZE_4,
    SNOOZE_24,
    UTILIZATION,
)
from handlers.context import ACK_TIMEOUT, NOT_OPENED, SLACK_ERRORS, Body, HandlerContext, stored
from handlers.home_tab import Show

log = logging.getLogger(__name__)

NOT_SHOWN = "Couldn't load the trials. Try again."
Handler = Callable[..., Awaitable[None]]
DOUBLE_CLICK = timedelta(seconds=10)  # clicks on Rerun within this time count as one
BUTTONS = {
    parent.LOGS: Action.LOGS,
    parent.RESULTS: Action.RESULTS,
    parent.RERUN: Action.RERUN,
} | {rule.button: action for action, rule in RULES.items() if rule.button and not rule.asks_reason}
REASON, MOST = "reason", 200  # the block; characters


def add_buttons(app: AsyncApp, context: HandlerContext, show: Show) -> None:
    for action_id, action in BUTTONS.items():
        app.action(action_id, matchers=[names_a_sweep])(_on_click(context, action, show))

    @app.action(parent.TRIALS, matchers=[names_a_sweep])
    async def trials(
        ack: AsyncAck, client: AsyncWebClient, respond: AsyncRespond, body: Body, action: Body
    ) -> None:
        """Open the modal at once, because Slack allows 3 seconds; a worker fills it."""
        try:
            async with asyncio.timeout(ACK_TIMEOUT):
                opened = await client.views_open(trigger_id=body["trigger_id"], view=loading("Loading…"))
                await context.send(action["value"], _command(body, Action.TRIALS, view=opened["view"]["id"]))
        except (RedisError, *SLACK_ERRORS):
            log.exception("failed to show trials")
            await tell(respond, body, NOT_SHOWN)
        await ack()

    @app.action(CONTINUE, matchers=[names_a_trial])
    async def go_on(ack: AsyncAck, respond: AsyncRespond, body: Body, action: Body) -> None:
        """Start the sweep again within the bounds that the button names."""
        sweep, _, where = action["value"].partition(" ")
        await _queued(respond, body, _rerun(context, body, sweep, f'where="{where}"'))
        await ack()

    @app.action(CANCEL_TRIAL, matchers=[names_a_trial])
    async def cancel_trial(ack: AsyncAck, respond: AsyncRespond, body: Body, action: Body) -> None:
        """Cancel a trial from the modal of trials, and update the modal."""
        sweep, _, trial = action["value"].partition(" ")
        if await _queued(respond, body, context.send(sweep, _command(body, Action.KILL, trial=trial))):
            update = _command(body, Action.TRIALS, view=body["view"]["id"])
            await _queued(respond, body, context.send(sweep, update))
        await ack()


async def names_a_sweep(action: Body) -> bool:
    """Ignore forged values: they would name an arbitrary queue item."""
    return bool(SWEEP_ID.fullmatch(action.get("value", "")))


async def names_a_trial(action: Body) -> bool:
    return bool(SWEEP_ID.fullmatch(action.get("value", "").partition(" ")[0]))


def _on_click(context: HandlerContext, act: Action, show: Show) -> Handler:
    async def click(
        ack: AsyncAck, client: AsyncWebClient, respond: AsyncRespond, body: Body, action: Body
    ) -> None:
        queued = await _queued(respond, body, _send(context, body, act, action["value"]))
        if queued and body.get("view", {}).get("type") == "home":  # Slack doesn't refresh it
            await show(client, body["user"]["id"], action["value"])
        await ack()

    return click


async def _send(context: HandlerContext, body: Body, act: Action, sweep: str) -> None:
    """Queue the command, but not of a double click on Rerun, which would start two sweeps."""
    if act is Action.RERUN:
        await _rerun(context, body, sweep)
    else:
        await context.send(sweep, _command(body, act))


async def _rerun(context: HandlerContext, body: Body, sweep: str, changes: str = "") -> None:
    rerun = _command(body, Action.RERUN, request_id=body["trigger_id"], changes=changes)
    once = f"rerun/{body['user']['id']}/{sweep} {changes}".strip()
    await context.send(sweep, rerun, once=once, within=DOUBLE_CLICK)


async def _queued(respond: AsyncRespond, body: Body, sending: Awaitable[None]) -> bool:
    """Return whether the command was stored; tell the user if not."""
    if failure := await stored("a button click", sending):
        await tell(respond, body, failure)
    return not failure


async def tell(respond: AsyncRespond, body: Body, text: str) -> None:
    """Answer the user alone; modals and the home tab have no response_url for it."""
    if body.get("response_url"):
        await respond(text=text, response_type="ephemeral", replace_original=False)


def _command(body: Body, act: Action, **more: Any) -> Command:
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


def _clicked_message(place: Body) -> str:
    """Return channel and ts of the clicked message; "" for a modal, the home tab, or an ephemeral message."""
    is_public = place.get("type") == "message" and not place.get("is_ephemeral")
    return f"{place['channel_id']} {place['message_ts']}" if is_public else ""


def add_idle_buttons(app: AsyncApp, context: HandlerContext) -> None:
    app.action(CANCEL_IDLE, matchers=[names_a_trial])(_on_idle(context, Action.KILL))
    app.action(CANCEL_IDLE_GROUP)(_on_idle(context, Action.KILL))
    for action, hours in ((SNOOZE_4, 4), (SNOOZE_24, 24), (NEEDED, NEEDED_HOURS)):
        app.action(action)(_on_idle(context, Action.KEEP, hours))
    app.action(UTILIZATION)(_on_idle(context, Action.MEASURES))
    app.action(ASK_OWNER)(_on_idle(context, Action.ASK))


def _on_idle(context: HandlerContext, act: Action, hours: int = 0) -> Handler:
    async def click(ack: AsyncAck, respond: AsyncRespond, body: Body, action: Body) -> None:
        user, value = body["user"], action["value"]
        about, _, trials = value.partition(" ") if act is Action.KILL else (value, "", "")
        command = Command(
            action=act,
            trial=trials,
            hours=hours,
            user=user["id"],
            user_name=user_name(user),
            request_id=body.get("trigger_id", ""),
        )
        if action["action_id"] == CANCEL_IDLE:  # replied in the thread: a response_url would be the channel
            await _queued(respond, body, context.send(about, replace(command, in_thread=True)))
        else:  # the monitor measures again first: trials may be busy again since the warning
            command = replace(command, alert=about, response_url=body.get("response_url", ""))
            await _queued(respond, body, context.send(str(ITEM), command))
        await ack()

    return click


def add_reasons(app: AsyncApp, context: HandlerContext) -> None:
    for action, rule in RULES.items():
        if rule.asks_reason:
            app.action(rule.button, matchers=[names_a_sweep])(_on_asking(action, rule.button))
            app.view(rule.button)(_on_reason(context, action))


def _on_asking(asked: Action, callback: str) -> Handler:
    verb = asked.label.capitalize()
    box = text_box("Optional, for its owner and the thread", MOST)
    line = input_block(REASON, "Reason", box, optional=True)

    async def click(
        ack: AsyncAck, client: AsyncWebClient, respond: AsyncRespond, body: Body, action: Body
    ) -> None:
        title = f"{verb} this sweep?"
        view = form_modal(title, [line], callback, verb, action["value"], "Keep waiting")
        try:
            async with asyncio.timeout(ACK_TIMEOUT):
                await client.views_open(trigger_id=body["trigger_id"], view=view)
        except SLACK_ERRORS:
            log.exception("failed to ask for a reason")
            await tell(respond, body, NOT_OPENED)
        await ack()

    return click


def _on_reason(context: HandlerContext, action: Action) -> Handler:
    async def submitted(ack: AsyncAck, body: Body) -> None:
        view, user = body["view"], body["user"]
        reason = " ".join(value_of(view["state"]["values"][REASON]["value"]).split())[:MOST]
        command = Command(action=action, user=user["id"], user_name=user_name(user), reason=reason)
        if failure := await stored("a reason", context.send(view["private_metadata"], command)):
            await ack(response_action="errors", errors={REASON: failure})
        else:
            await ack()

    return submitted
