"""Handle buttons: a click queues a command; a worker applies it to the current state.

Below messages about idle GPUs, cancelling one trial goes to its sweep, everything else to the GPU monitor.
"""

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
from bot.measure.gpus.command import ASK_OWNER
from bot.measure.gpus.models import ITEM
from bot.platform.slack.blocks import user_name
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
from handlers.context import ACK_TIMEOUT, SLACK_ERRORS, Body, HandlerContext, stored
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

# A button's value and the fields of its user -> the queue item to handle it, and the command.
MakeCommand = Callable[[str, Body], tuple[str, Command]]


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
    app.action(CANCEL_IDLE, matchers=[names_a_trial])(_on(context, _cancel))
    app.action(CANCEL_IDLE_GROUP)(_on(context, _cancel_many))
    for action, hours in ((SNOOZE_4, 4), (SNOOZE_24, 24), (NEEDED, NEEDED_HOURS)):
        app.action(action)(_on(context, _about_alert(Action.KEEP, hours)))
    app.action(UTILIZATION)(_on(context, _about_alert(Action.MEASURES)))
    app.action(ASK_OWNER)(_on(context, _about_alert(Action.ASK)))


def _on(context: HandlerContext, make_command: MakeCommand) -> Handler:
    async def click(ack: AsyncAck, respond: AsyncRespond, body: Body, action: Body) -> None:
        user = body["user"]
        fields = {
            "user": user["id"],
            "user_name": user_name(user),
            "response_url": body.get("response_url", ""),
            "request_id": body.get("trigger_id", ""),
        }
        await _queued(respond, body, context.send(*make_command(action["value"], fields)))
        await ack()

    return click


def _cancel(value: str, fields: Body) -> tuple[str, Command]:
    """Reply in the thread; a response_url would put the reply into the channel."""
    sweep, _, trial = value.partition(" ")
    fields = fields | {"response_url": "", "in_thread": True}
    return sweep, Command(action=Action.KILL, trial=trial, **fields)


def _cancel_many(value: str, fields: Body) -> tuple[str, Command]:
    """The monitor measures again first: trials may be busy again since the warning."""
    alert, _, trials = value.partition(" ")
    return str(ITEM), Command(action=Action.KILL, alert=alert, trial=trials, **fields)


def _about_alert(act: Action, hours: int = 0) -> MakeCommand:
    return lambda alert, fields: (str(ITEM), Command(action=act, alert=alert, hours=hours, **fields))
