"""/sweep: the grammar is checked here and now, everything else by a turn."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck
from slack_sdk.web.async_client import AsyncWebClient

from bot.access import may_examine, may_launch
from bot.audit import tell
from bot.doctor import ITEM
from bot.hints import listed
from bot.models import Act, Ask, Asker, Deed, UserError
from bot.mrkdwn import code, cut, plain
from bot.request import EXAMPLE, HELP, parse, unescape, words
from bot.wishes import slip, word_of
from handlers.door import PATIENCE, Door, unconfirmed
from handlers.setup import open_setup
from handlers.views import open_form
from handlers.wishing import Speaker, hear, is_wish

MOST_NAMED = 10
GREETING = 0.5  # seconds for a thing that can wait

log = logging.getLogger(__name__)

Handler = Callable[[AsyncAck, dict[str, Any], AsyncWebClient], Awaitable[None]]


def on_sweep(door: Door) -> Handler:
    async def sweep(ack: AsyncAck, command: dict[str, Any], client: AsyncWebClient) -> None:
        await _meet(door, command["user_id"])
        if word_of(command.get("text", ""))[0] == "setup":
            await ack(text=cut(await open_setup(door, client, command)))
        elif (form := await _form(door, command, client)) is not None:
            await ack(text=cut(form))
        else:
            await ack(text=cut(await _answer(door, command)))

    return sweep


async def _meet(door: Door, user: str) -> None:
    with contextlib.suppress(RedisError, TimeoutError):
        async with asyncio.timeout(GREETING):
            await door.desk.meet(user)


async def _form(door: Door, command: dict[str, Any], client: AsyncWebClient) -> str | None:
    """What to say of the form for what is not yet said: nothing once it is open. None: it is not its turn."""
    text = command.get("text", "").strip()
    try:
        said = None if is_wish(text) else words(text)
    except UserError:
        return None
    user, channel = command["user_id"], command["channel_id"]
    if said is None or {"branch", "space"} <= said.keys() or may_launch(user, channel, door.config):
        return None
    return await open_form(door, client, command["trigger_id"], user, channel, said)


async def _answer(door: Door, command: dict[str, Any]) -> str:
    text = command.get("text", "").strip()
    word = word_of(text)[0]
    if word in {"", "help"}:  # without a word there is the form, where it can be
        return (not text and _forbidden(door, command)) or HELP
    if hint := slip(text, "help", "setup", "doctor", "release"):
        return f"{hint} Or start a sweep, for example {EXAMPLE}; `/sweep help` has the rest."
    try:
        if word == "doctor":
            return may_examine(command["user_id"], door.config) or await _examine(door, command)
        if word == "release":
            return await _release(door, command)
        if is_wish(text):
            return await hear(door, text, _speaker(command))
        if refusal := _forbidden(door, command):
            return refusal
        record = await door.take(parse(text, door.config), asker_of(command), command["trigger_id"])
    except UserError as error:
        return plain(str(error))
    except (RedisError, TimeoutError) as error:
        log.exception("a sweep could not be queued")
        return unconfirmed(error)
    branch = code(record.request.branch)
    return f"On it: `{record.id}`. Its thread tells the story as soon as {branch} is checked."


def _speaker(command: dict[str, Any]) -> Speaker:
    return Speaker(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        delivery=command["trigger_id"],
        response_url=command.get("response_url", ""),
    )


def _forbidden(door: Door, command: dict[str, Any]) -> str:
    """Why this person may start nothing here; the sweep's first turn looks again, at its size, too."""
    user, channel = command["user_id"], command["channel_id"]
    if refusal := may_launch(user, channel, door.config):
        tell("", Deed(at=door.now(), user=user, act=Act.LAUNCH, about=f"in {channel}", refused=refusal))
    return refusal


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


async def _release(door: Door, command: dict[str, Any]) -> str:
    """What the queue set aside: a sweep, or an item that only the doctor names."""
    item, user = word_of(unescape(command["text"]))[1].replace("`", ""), command["user_id"]
    refused = may_examine(user, door.config)
    tell(item, Deed(at=door.now(), user=user, act=Act.RELEASE, refused=refused))
    if refused:
        return refused
    async with asyncio.timeout(PATIENCE):
        if await door.queue.retry(item):
            return f"{code(item)} is released. Sweepbot tries again now."
        held = await door.queue.quarantined()
    known = listed([code(each) for each in sorted(held)[:MOST_NAMED]]) or "nothing"
    return f"{code(item) if item else 'This'} is not quarantined; quarantined: {known}."


def asker_of(command: dict[str, Any]) -> Asker:
    return Asker(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        response_url=command.get("response_url", ""),
    )
