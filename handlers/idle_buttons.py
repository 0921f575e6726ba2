"""Buttons below GPU warnings: cancelling one trial goes to its sweep, everything else to the GPU monitor."""

import logging
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond

from bot.core.commands import Action, Command
from bot.gpus.models import ITEM
from bot.idle.messages import CANCEL_IDLE, CANCEL_IDLE_GROUP, SNOOZE_4, SNOOZE_24, UTILIZATION
from bot.slack.inputs import user_name
from handlers.buttons import Handler, names_a_trial
from handlers.context import HandlerContext, unconfirmed

log = logging.getLogger(__name__)

# A button's value and the fields of its user -> the queue item to handle it, and the command.
MakeCommand = Callable[[str, dict[str, Any]], tuple[str, Command]]


def add_idle_buttons(app: AsyncApp, context: HandlerContext) -> None:
    app.action(CANCEL_IDLE, matchers=[names_a_trial])(_on(context, _cancel))
    app.action(CANCEL_IDLE_GROUP)(_on(context, _cancel_many))
    app.action(SNOOZE_4)(_on(context, _snooze(4)))
    app.action(SNOOZE_24)(_on(context, _snooze(24)))
    app.action(UTILIZATION)(_on(context, _utilization))


def _on(context: HandlerContext, make_command: MakeCommand) -> Handler:
    async def click(
        ack: AsyncAck, respond: AsyncRespond, body: dict[str, Any], action: dict[str, Any]
    ) -> None:
        user = body["user"]
        fields = {
            "user": user["id"],
            "user_name": user_name(user),
            "response_url": body.get("response_url", ""),
            "request_id": body.get("trigger_id", ""),
        }
        try:
            await context.send(*make_command(action["value"], fields))
        except (RedisError, TimeoutError) as error:
            log.exception("failed to queue a button click")
            if body.get("response_url"):
                await respond(text=unconfirmed(error), response_type="ephemeral", replace_original=False)
        await ack()

    return click


def _cancel(value: str, fields: dict[str, Any]) -> tuple[str, Command]:
    """Reply in the thread; a response_url would put the reply into the channel."""
    sweep, _, trial = value.partition(" ")
    fields = fields | {"response_url": "", "in_thread": True}
    return sweep, Command(action=Action.KILL, trial=trial, **fields)


def _cancel_many(value: str, fields: dict[str, Any]) -> tuple[str, Command]:
    """The monitor measures again first: trials may be busy again since the warning."""
    alert, _, trials = value.partition(" ")
    return str(ITEM), Command(action=Action.KILL, alert=alert, trial=trials, **fields)


def _snooze(hours: int) -> MakeCommand:
    return lambda alert, fields: (str(ITEM), Command(action=Action.KEEP, alert=alert, hours=hours, **fields))


def _utilization(alert: str, fields: dict[str, Any]) -> tuple[str, Command]:
    return str(ITEM), Command(action=Action.MEASURES, alert=alert, **fields)
