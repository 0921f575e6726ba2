"""/gpus: an answer at once from what is known; a worker measures anew and answers again when that is old."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck

from bot.access import may_examine
from bot.gpus import FRESH, HELP, Wish, answer, read_wish
from bot.known import ITEM, Question
from bot.models import UserError
from bot.mrkdwn import cut
from handlers.door import PATIENCE, Door, unconfirmed

log = logging.getLogger(__name__)

Handler = Callable[[AsyncAck, dict[str, Any]], Awaitable[None]]

COMMAND = "/gpus"
SOON = {
    "bill": "Adding up; the bill comes here in a moment.",
    "digest": "Yesterday's digest comes into this channel in a moment, if I am a member of it.",
}
LOOKING = "Looking; the answer comes here in a few seconds. If none comes, no worker is running."


def on_gpus(door: Door) -> Handler:
    async def gpus(ack: AsyncAck, command: dict[str, Any]) -> None:
        await ack(text=cut(await _answer(door, command)))

    return gpus


async def _answer(door: Door, command: dict[str, Any]) -> str:
    try:
        wish = read_wish(command.get("text", ""), door.config.teams)
        if wish.view == "help":
            return HELP
        if wish.view == "digest" and (refusal := may_examine(command["user_id"], door.config)):
            return refusal
        async with asyncio.timeout(PATIENCE):
            return await _known(door, command, wish)
    except UserError as error:
        return str(error)
    except (RedisError, TimeoutError) as error:
        log.exception("a question about GPUs could not be queued")
        return unconfirmed(error)


async def _known(door: Door, command: dict[str, Any], wish: Wish) -> str:
    latest = None if wish.view in SOON else await door.known.latest()
    said = answer(wish.view, latest, command["user_id"], door.now()) if latest else ""
    if latest and door.now() - latest.at < FRESH:
        return said
    question = Question(
        user=command["user_id"],
        channel=command["channel_id"],
        text=command.get("text", ""),
        response_url=command.get("response_url", ""),
        at=door.now(),
    )
    await door.known.ask(question)
    await door.queue.add(ITEM)
    return SOON.get(wish.view) or (f"{said}\nMeasuring anew …" if said else LOOKING)
