"""/sweep: the grammar is checked here and now, everything else by a turn."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck
from slack_sdk.web.async_client import AsyncWebClient

from bot.config.permissions import doctor_denial, launch_denial
from bot.core.commands import Action, AuditEntry, Command
from bot.core.errors import UserError
from bot.core.request import Requester
from bot.core.wording import listed
from bot.core.work_item import WorkItem
from bot.doctor.examination import ITEM
from bot.launch.command_line import EXAMPLE, HELP, parse, unescape, words
from bot.runtime.audit import tell
from bot.slack.mrkdwn import code, cut, plain
from bot.sweeps.command_parser import first_word, suggest_command
from handlers.channel_setup import open_setup
from handlers.context import PATIENCE, HandlerContext, unconfirmed
from handlers.launch_form import open_form
from handlers.sweep_commands import Sender, handle_command, is_command

MOST_NAMED = 10
GREETING = 0.5  # seconds for a thing that can wait

log = logging.getLogger(__name__)

Handler = Callable[[AsyncAck, dict[str, Any], AsyncWebClient], Awaitable[None]]


def on_sweep(context: HandlerContext) -> Handler:
    async def sweep(ack: AsyncAck, command: dict[str, Any], client: AsyncWebClient) -> None:
        await _meet(context, command["user_id"])
        if first_word(command.get("text", ""))[0] == "setup":
            await ack(text=cut(await open_setup(context, client, command)))
        elif (form := await _form(context, command, client)) is not None:
            await ack(text=cut(form))
        else:
            await ack(text=cut(await _answer(context, command)))

    return sweep


async def _meet(context: HandlerContext, user: str) -> None:
    with contextlib.suppress(RedisError, TimeoutError):
        async with asyncio.timeout(GREETING):
            await context.desk.meet(user)


async def _form(context: HandlerContext, command: dict[str, Any], client: AsyncWebClient) -> str | None:
    """What to say of the form for what is not yet said: nothing once it is open. None: it is not its turn."""
    text = command.get("text", "").strip()
    try:
        said = None if is_command(text) else words(text)
    except UserError:
        return None
    user, channel = command["user_id"], command["channel_id"]
    if said is None or {"branch", "space"} <= said.keys() or launch_denial(user, channel, context.config):
        return None
    return await open_form(context, client, command["trigger_id"], user, channel, said)


async def _answer(context: HandlerContext, command: dict[str, Any]) -> str:
    text = command.get("text", "").strip()
    word = first_word(text)[0]
    if word in {"", "help"}:  # without a word there is the form, where it can be
        return (not text and _forbidden(context, command)) or HELP
    if hint := suggest_command(text, "help", "setup", "doctor", "release"):
        return f"{hint} Or start a sweep, for example {EXAMPLE}; `/sweep help` has the rest."
    try:
        if word == "doctor":
            return doctor_denial(command["user_id"], context.config) or await _examine(context, command)
        if word == "release":
            return await _release(context, command)
        if is_command(text):
            return await handle_command(context, text, _speaker(command))
        if refusal := _forbidden(context, command):
            return refusal
        record = await context.take(parse(text, context.config), requester_of(command), command["trigger_id"])
    except UserError as error:
        return plain(str(error))
    except (RedisError, TimeoutError) as error:
        log.exception("a sweep could not be queued")
        return unconfirmed(error)
    branch = code(record.request.branch)
    return f"On it: `{record.id}`. Its thread tells the story as soon as {branch} is checked."


def _speaker(command: dict[str, Any]) -> Sender:
    return Sender(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        request_id=command["trigger_id"],
        response_url=command.get("response_url", ""),
    )


def _forbidden(context: HandlerContext, command: dict[str, Any]) -> str:
    """Why this person may start nothing here; the sweep's first turn looks again, at its size, too."""
    user, channel = command["user_id"], command["channel_id"]
    if refusal := launch_denial(user, channel, context.config):
        tell(
            "",
            AuditEntry(
                at=context.now(), user=user, action=Action.LAUNCH, about=f"in {channel}", refused=refusal
            ),
        )
    return refusal


async def _examine(context: HandlerContext, command: dict[str, Any]) -> str:
    """A worker looks, not this process: the answer is then about what runs the sweeps."""
    ask = Command(
        action=Action.EXAMINE,
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        response_url=command.get("response_url", ""),
    )
    await context.send(str(ITEM), ask)
    return "Looking; the answer comes here in a few seconds. If none comes, no worker is running."


async def _release(context: HandlerContext, command: dict[str, Any]) -> str:
    """What the queue set aside: a sweep, or an item that only the doctor names."""
    item, user = first_word(unescape(command["text"]))[1].replace("`", ""), command["user_id"]
    refused = doctor_denial(user, context.config)
    tell(item, AuditEntry(at=context.now(), user=user, action=Action.RELEASE, refused=refused))
    if refused:
        return refused
    async with asyncio.timeout(PATIENCE):
        if await context.queue.retry(WorkItem.parse(item)):
            return f"{code(item)} is released. Sweepbot tries again now."
        held = await context.queue.quarantined()
    known = listed([code(each) for each in sorted(held)[:MOST_NAMED]]) or "nothing"
    return f"{code(item) if item else 'This'} is not quarantined; quarantined: {known}."


def requester_of(command: dict[str, Any]) -> Requester:
    return Requester(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        response_url=command.get("response_url", ""),
    )
