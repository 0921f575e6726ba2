"""/gpus: an answer at once from what is known; a worker measures anew and answers again when that is old."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck

from bot.config.permissions import doctor_denial
from bot.core.errors import UserError
from bot.gpus.command import FRESH, HELP, ParsedCommand, answer, parse_command
from bot.gpus.snapshot_store import ITEM, Question
from bot.slack.mrkdwn import cut
from handlers.context import PATIENCE, HandlerContext, unconfirmed

log = logging.getLogger(__name__)

Handler = Callable[[AsyncAck, dict[str, Any]], Awaitable[None]]

COMMAND = "/gpus"
SOON = {
    "bill": "Adding up; the bill comes here in a moment.",
    "digest": "Yesterday's digest comes into this channel in a moment, if I am a member of it.",
}
LOOKING = "Looking; the answer comes here in a few seconds. If none comes, no worker is running."


def on_gpus(context: HandlerContext) -> Handler:
    async def gpus(ack: AsyncAck, command: dict[str, Any]) -> None:
        await ack(text=cut(await _answer(context, command)))

    return gpus


async def _answer(context: HandlerContext, command: dict[str, Any]) -> str:
    try:
        parsed = parse_command(command.get("text", ""), context.config.teams)
        if parsed.view == "help":
            return HELP
        if parsed.view == "digest" and (refusal := doctor_denial(command["user_id"], context.config)):
            return refusal
        async with asyncio.timeout(PATIENCE):
            return await _known(context, command, parsed)
    except UserError as error:
        return str(error)
    except (RedisError, TimeoutError) as error:
        log.exception("a question about GPUs could not be queued")
        return unconfirmed(error)


async def _known(context: HandlerContext, command: dict[str, Any], parsed: ParsedCommand) -> str:
    latest = None if parsed.view in SOON else await context.known.latest()
    said = answer(parsed.view, latest, command["user_id"], context.now()) if latest else ""
    if latest and context.now() - latest.at < FRESH:
        return said
    question = Question(
        user=command["user_id"],
        channel=command["channel_id"],
        text=command.get("text", ""),
        response_url=command.get("response_url", ""),
        at=context.now(),
    )
    await context.known.ask(question)
    await context.queue.add(ITEM)
    return SOON.get(parsed.view) or (f"{said}\nMeasuring anew …" if said else LOOKING)
