"""Buttons under a warning: to end a trial is asked of its sweep, all else of the watch on GPUs."""

import logging
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond

from bot.models import Act, Ask
from bot.told import ITEM
from bot.warning import CANCEL, CANCEL_MANY, KEEP_4, KEEP_24, MEASURES
from handlers.actions import Handler, names_a_trial
from handlers.door import Door, unconfirmed

log = logging.getLogger(__name__)

Asks = Callable[[str, dict[str, Any]], list[tuple[str, Ask]]]  # a button's value, who -> whose mailbox, what


def register(app: AsyncApp, door: Door) -> None:
    app.action(CANCEL, matchers=[names_a_trial])(_on(door, _cancel))
    app.action(CANCEL_MANY)(_on(door, _cancel_many))
    app.action(KEEP_4)(_on(door, _keep(4)))
    app.action(KEEP_24)(_on(door, _keep(24)))
    app.action(MEASURES)(_on(door, _measures))


def _on(door: Door, asks: Asks) -> Handler:
    async def click(
        ack: AsyncAck, respond: AsyncRespond, body: dict[str, Any], action: dict[str, Any]
    ) -> None:
        user = body["user"]
        who = {
            "user": user["id"],
            "user_name": user.get("username", ""),
            "response_url": body.get("response_url", ""),
            "delivery": body.get("trigger_id", ""),
        }
        try:
            for mailbox, ask in asks(action["value"], who):
                await door.ask(mailbox, ask)
        except (RedisError, TimeoutError) as error:
            log.exception("a click could not be queued")
            if body.get("response_url"):  # the home tab has none
                await respond(text=unconfirmed(error), response_type="ephemeral", replace_original=False)
        await ack()

    return click


def _cancel(value: str, who: dict[str, Any]) -> list[tuple[str, Ask]]:
    """Answered in the thread, where a response_url does not lead."""
    sweep, _, trial = value.partition(" ")
    who = who | {"response_url": "", "in_thread": True}
    return [(sweep, Ask(act=Act.KILL, trial=trial, **who))]


def _cancel_many(value: str, who: dict[str, Any]) -> list[tuple[str, Ask]]:
    """The message is some minutes old: meanwhile a trial may be at work again."""
    notice, _, trials = value.partition(" ")
    return [(ITEM, Ask(act=Act.KILL, notice=notice, trial=trials, **who))]


def _keep(hours: int) -> Asks:
    return lambda notice, who: [(ITEM, Ask(act=Act.KEEP, notice=notice, hours=hours, **who))]


def _measures(notice: str, who: dict[str, Any]) -> list[tuple[str, Ask]]:
    return [(ITEM, Ask(act=Act.MEASURES, notice=notice, **who))]
