"""Buttons under a warning: to end a trial is asked of its sweep, all else of the watch on GPUs."""

import logging
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond

from bot.core.commands import Action, Command
from bot.gpus.models import ITEM
from bot.idle.messages import CANCEL, CANCEL_MANY, KEEP_4, KEEP_24, MEASURES
from handlers.buttons import Handler, names_a_trial
from handlers.context import HandlerContext, unconfirmed

log = logging.getLogger(__name__)

Asks = Callable[
    [str, dict[str, Any]], list[tuple[str, Command]]
]  # a button's value, who -> whose mailbox, what


def register(app: AsyncApp, context: HandlerContext) -> None:
    app.action(CANCEL, matchers=[names_a_trial])(_on(context, _cancel))
    app.action(CANCEL_MANY)(_on(context, _cancel_many))
    app.action(KEEP_4)(_on(context, _keep(4)))
    app.action(KEEP_24)(_on(context, _keep(24)))
    app.action(MEASURES)(_on(context, _measures))


def _on(context: HandlerContext, commands: Asks) -> Handler:
    async def click(
        ack: AsyncAck, respond: AsyncRespond, body: dict[str, Any], action: dict[str, Any]
    ) -> None:
        user = body["user"]
        who = {
            "user": user["id"],
            "user_name": user.get("username", ""),
            "response_url": body.get("response_url", ""),
            "request_id": body.get("trigger_id", ""),
        }
        try:
            for mailbox, ask in commands(action["value"], who):
                await context.send(mailbox, ask)
        except (RedisError, TimeoutError) as error:
            log.exception("a click could not be queued")
            if body.get("response_url"):  # the home tab has none
                await respond(text=unconfirmed(error), response_type="ephemeral", replace_original=False)
        await ack()

    return click


def _cancel(value: str, who: dict[str, Any]) -> list[tuple[str, Command]]:
    """Answered in the thread, where a response_url does not lead."""
    sweep, _, trial = value.partition(" ")
    who = who | {"response_url": "", "in_thread": True}
    return [(sweep, Command(action=Action.KILL, trial=trial, **who))]


def _cancel_many(value: str, who: dict[str, Any]) -> list[tuple[str, Command]]:
    """The message is some minutes old: meanwhile a trial may be at work again."""
    alert, _, trials = value.partition(" ")
    return [(ITEM, Command(action=Action.KILL, alert=alert, trial=trials, **who))]


def _keep(hours: int) -> Asks:
    return lambda alert, who: [(ITEM, Command(action=Action.KEEP, alert=alert, hours=hours, **who))]


def _measures(alert: str, who: dict[str, Any]) -> list[tuple[str, Command]]:
    return [(ITEM, Command(action=Action.MEASURES, alert=alert, **who))]
