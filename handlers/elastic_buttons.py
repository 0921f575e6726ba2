"""Handle the button of elastic replicas."""

import logging
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond

from bot.workspaces.elastic import resume
from handlers.buttons import tell
from handlers.context import HandlerContext, unconfirmed_reply

log = logging.getLogger(__name__)

SENT = "Request sent. The message above shows the result."
Body = dict[str, Any]


def add_elastic_buttons(app: AsyncApp, context: HandlerContext) -> None:
    @app.action(resume.RESUME)
    async def click(ack: AsyncAck, respond: AsyncRespond, body: Body, action: Body) -> None:
        value, user = action.get("value", ""), body["user"]["id"]
        answer = resume.denial(value, user, context.config)
        try:
            if not answer:
                await context.add_request(*resume.request(value, user), is_polled=True)
        except (RedisError, TimeoutError) as error:
            log.exception("failed to store a click on Resume scaling")
            answer = unconfirmed_reply(error)
        await ack()
        await tell(respond, body, answer or SENT)
