"""The button below the message of a paused elastic Deployment."""

import asyncio
import logging
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond

from bot.elastic import resume
from handlers.context import ACK_TIMEOUT, HandlerContext, unconfirmed

log = logging.getLogger(__name__)

SENT = "Request sent. The message above shows the result."


def add_elastic_buttons(app: AsyncApp, context: HandlerContext) -> None:
    @app.action(resume.RESUME)
    async def click(
        ack: AsyncAck, respond: AsyncRespond, body: dict[str, Any], action: dict[str, Any]
    ) -> None:
        value, user = action.get("value", ""), body["user"]["id"]
        answer = resume.denial(value, user, context.config)
        try:
            if not answer:
                async with asyncio.timeout(ACK_TIMEOUT):
                    await resume.request(context.store, value, user)
        except (RedisError, TimeoutError) as error:
            log.exception("failed to store a click on Resume scaling")
            answer = unconfirmed(error)
        await ack()
        if body.get("response_url"):
            await respond(text=answer or SENT, response_type="ephemeral", replace_original=False)
