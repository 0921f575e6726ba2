"""/sweep: the grammar is checked here and now, everything else by a turn."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck

from bot.access import may_examine
from bot.doctor import ITEM
from bot.models import Act, Ask, Asker, UserError
from bot.mrkdwn import code, plain
from bot.request import ACTS, HELP, parse, parse_act
from handlers.door import UNREACHABLE, Door

log = logging.getLogger(__name__)

Handler = Callable[[AsyncAck, dict[str, Any]], Awaitable[None]]


def on_sweep(door: Door) -> Handler:
    async def sweep(ack: AsyncAck, command: dict[str, Any]) -> None:
        await ack(text=await _answer(door, command))

    return sweep


async def _answer(door: Door, command: dict[str, Any]) -> str:
    text = command.get("text", "").strip()
    if text in {"", "help"}:
        return HELP
    try:
        if text == "doctor":
            return may_examine(command["user_id"], door.config) or await _examine(door, command)
        if text.split()[0] in ACTS:
            return await _ask(door, command, text)
        record = await door.take(parse(text, door.config), asker_of(command), command["trigger_id"])
    except UserError as error:
        return plain(str(error))
    except (RedisError, TimeoutError):
        log.exception("a sweep could not be queued")
        return UNREACHABLE
    branch = code(record.request.branch)
    return f"On it: `{record.id}`. Its thread tells the story as soon as {branch} is checked."


async def _ask(door: Door, command: dict[str, Any], text: str) -> str:
    """The sweep's next turn decides, by the state it then finds."""
    sweep, act, trial, trials = parse_act(text)
    ask = Ask(
        act=act,
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        response_url=command.get("response_url", ""),
        trial=trial,
        trials=trials,
    )
    await door.ask(sweep, ask)
    return f"Asked {code(sweep)}; its thread tells what becomes of it."


async def _examine(door: Door, command: dict[str, Any]) -> str:
    """A worker looks, not this process: the answer is then about what runs the sweeps."""
    ask = Ask(
        act=Act.EXAMINE,
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        response_url=command.get("response_url", ""),
    )
    await door.ask(ITEM, ask)
    return "Looking; the answer comes here in a few seconds. If none comes, no worker is running."


def asker_of(command: dict[str, Any]) -> Asker:
    return Asker(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        response_url=command.get("response_url", ""),
    )
