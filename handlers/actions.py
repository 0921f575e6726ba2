"""Buttons: a click becomes an ask in the sweep's mailbox; its next turn decides, by the state it finds."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncRespond

from bot.models import Act, Ask
from handlers.door import UNREACHABLE, Door

log = logging.getLogger(__name__)

Handler = Callable[[AsyncAck, AsyncRespond, dict[str, Any], dict[str, Any]], Awaitable[None]]


def on_cancel(door: Door) -> Handler:
    async def cancel(
        ack: AsyncAck, respond: AsyncRespond, body: dict[str, Any], action: dict[str, Any]
    ) -> None:
        user = body["user"]
        ask = Ask(
            act=Act.CANCEL,
            user=user["id"],
            user_name=user.get("username", ""),
            response_url=body.get("response_url", ""),
        )
        try:
            await door.ask(action["value"], ask)
        except (RedisError, TimeoutError):
            log.exception("a click could not be queued")
            await respond(text=UNREACHABLE, response_type="ephemeral", replace_original=False)
        await ack()

    return cancel
