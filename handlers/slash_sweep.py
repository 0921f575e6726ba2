"""Handle /sweep: check the syntax at once; workers check everything else."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.answers.command_parser import first_word, suggest_command
from bot.config.permissions import launch_denial
from bot.core.commands import Action, AuditEntry
from bot.core.errors import UserError
from bot.core.request import Requester
from bot.launch.command_line import complete, missing_options, parse, parse_options
from bot.launch.help_text import EXAMPLE, HELP
from bot.runtime.audit import write_entry
from bot.slack.mrkdwn import code, cut, plain
from handlers.channel_setup import open_setup
from handlers.context import HandlerContext, unconfirmed
from handlers.launch_form import open_form
from handlers.other_commands import WORDS
from handlers.sweep_commands import handle_command, is_command, sender_of

GREETING_TIMEOUT = 0.5  # seconds

log = logging.getLogger(__name__)

Handler = Callable[[AsyncAck, dict[str, Any], AsyncWebClient], Awaitable[None]]


def add_sweep(app: AsyncApp, context: HandlerContext) -> None:
    app.command("/sweep")(_on_sweep(context))


def _on_sweep(context: HandlerContext) -> Handler:
    async def sweep(ack: AsyncAck, command: dict[str, Any], client: AsyncWebClient) -> None:
        await _greet(context, command["user_id"])
        options = _options(command)
        if first_word(command.get("text", ""))[0] == "setup":
            await ack(text=cut(await open_setup(context, client, command)))
        elif (form := await _form(context, command, options, client)) is not None:
            await ack(text=cut(form))
        else:
            await ack(text=cut(await _answer(context, command, options)))

    return sweep


async def _greet(context: HandlerContext, user: str) -> None:
    if not context.channel_setup.is_new(user):
        return
    with contextlib.suppress(RedisError, TimeoutError):
        async with asyncio.timeout(GREETING_TIMEOUT):
            await context.channel_setup.queue_greeting(user)


def _options(command: dict[str, Any]) -> dict[str, str] | None:
    """Return the options of a new sweep; None for another command, and for a syntax error."""
    text = command.get("text", "").strip()
    try:
        return None if is_command(text) else parse_options(text)
    except UserError:
        return None


async def _form(
    context: HandlerContext, command: dict[str, Any], options: dict[str, str] | None, client: AsyncWebClient
) -> str | None:
    """Open the form for an incomplete command; return why it isn't open, "" if it is, None if not needed."""
    user, channel = command["user_id"], command["channel_id"]
    if options is None or not missing_options(options) or launch_denial(user, channel, context.config):
        return None
    return await open_form(context, client, command["trigger_id"], user, channel, options)


async def _answer(context: HandlerContext, command: dict[str, Any], options: dict[str, str] | None) -> str:
    text = command.get("text", "").strip()
    word = first_word(text)[0]
    if word in {"", "help"}:  # "" if the form could not be opened
        return (not text and _denial(context, command)) or HELP
    if hint := suggest_command(text, "help", "setup", "doctor", "release", "history", "admin"):
        return f"{hint} To start a sweep: {EXAMPLE}. All commands: `/sweep help`."
    try:
        if answer := WORDS.get(word):
            return await answer(context, command)
        if is_command(text):
            return await handle_command(context, text, sender_of(command))
        if refusal := _denial(context, command):
            return refusal
        config = context.config
        request = parse(text, config) if options is None else complete(options, (), config)
        record = await context.create_sweep(request, requester_of(command), command["trigger_id"])
    except UserError as error:
        return plain(str(error))
    except (RedisError, TimeoutError) as error:
        log.error("failed to queue a sweep: %r", error)  # noqa: TRY400 - a busy process has no time for traces
        return unconfirmed(error)
    branch = code(record.request.branch)
    return f"Sweep `{record.id}` queued. Its thread opens here once {branch} is checked."


def _denial(context: HandlerContext, command: dict[str, Any]) -> str:
    """Return why this user can't start sweeps here; a worker also checks the sweep's size."""
    user, channel = command["user_id"], command["channel_id"]
    if refusal := launch_denial(user, channel, context.config):
        write_entry(
            "",
            AuditEntry(
                at=context.now(), user=user, action=Action.LAUNCH, about=f"in {channel}", refused=refusal
            ),
        )
    return refusal


def requester_of(command: dict[str, Any]) -> Requester:
    return Requester(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        response_url=command.get("response_url", ""),
    )
