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
from bot.config.permissions import doctor_denial, launch_denial
from bot.core.commands import Action, AuditEntry, Command
from bot.core.errors import UserError
from bot.core.request import Requester
from bot.core.wording import listed
from bot.core.work_item import DOCTOR, ItemKind, WorkItem
from bot.launch.command_line import EXAMPLE, HELP, missing_options, parse, parse_options, unescape
from bot.launch.options import READERS
from bot.runtime.audit import write_entry
from bot.slack.mrkdwn import code, cut, plain
from handlers.admin_commands import run_admin
from handlers.channel_setup import open_setup
from handlers.context import ACK_TIMEOUT, HandlerContext, unconfirmed
from handlers.launch_form import open_form
from handlers.sweep_commands import Sender, handle_command, is_command

MAX_NAMED = 10  # quarantined items in a reply
GREETING_TIMEOUT = 0.5  # seconds

log = logging.getLogger(__name__)

Handler = Callable[[AsyncAck, dict[str, Any], AsyncWebClient], Awaitable[None]]


def add_sweep(app: AsyncApp, context: HandlerContext) -> None:
    app.command("/sweep")(_on_sweep(context))


def _on_sweep(context: HandlerContext) -> Handler:
    async def sweep(ack: AsyncAck, command: dict[str, Any], client: AsyncWebClient) -> None:
        await _greet(context, command["user_id"])
        if first_word(command.get("text", ""))[0] == "setup":
            await ack(text=cut(await open_setup(context, client, command)))
        elif (form := await _form(context, command, client)) is not None:
            await ack(text=cut(form))
        else:
            await ack(text=cut(await _answer(context, command)))

    return sweep


async def _greet(context: HandlerContext, user: str) -> None:
    with contextlib.suppress(RedisError, TimeoutError):
        async with asyncio.timeout(GREETING_TIMEOUT):
            await context.channel_setup.queue_greeting(user)


async def _form(context: HandlerContext, command: dict[str, Any], client: AsyncWebClient) -> str | None:
    """Open the form for an incomplete command; return why it isn't open, "" if it is, None if not needed."""
    text = command.get("text", "").strip()
    try:
        options = None if is_command(text) else parse_options(text)
    except UserError:
        return None
    user, channel = command["user_id"], command["channel_id"]
    if options is None or not missing_options(options) or launch_denial(user, channel, context.config):
        return None
    return await open_form(context, client, command["trigger_id"], user, channel, options)


async def _answer(context: HandlerContext, command: dict[str, Any]) -> str:
    text = command.get("text", "").strip()
    word = first_word(text)[0]
    if word in {"", "help"}:  # "" if the form could not be opened
        return (not text and _denial(context, command)) or HELP
    if hint := suggest_command(text, "help", "setup", "doctor", "release", "history", "admin"):
        return f"{hint} To start a sweep: {EXAMPLE}. All commands: `/sweep help`."
    try:
        if answer := _WORDS.get(word):
            return await answer(context, command)
        if is_command(text):
            return await handle_command(context, text, _sender(command))
        if refusal := _denial(context, command):
            return refusal
        request, requester = parse(text, context.config), requester_of(command)
        record = await context.create_sweep(request, requester, command["trigger_id"])
    except UserError as error:
        return plain(str(error))
    except (RedisError, TimeoutError) as error:
        log.error("failed to queue a sweep: %r", error)  # noqa: TRY400 - a busy process has no time for traces
        return unconfirmed(error)
    branch = code(record.request.branch)
    return f"Sweep `{record.id}` queued. Its thread opens here once {branch} is checked."


def _sender(command: dict[str, Any]) -> Sender:
    return Sender(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        request_id=command["trigger_id"],
        response_url=command.get("response_url", ""),
    )


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


async def _examine(context: HandlerContext, command: dict[str, Any]) -> str:
    """Let a worker run the checks: they are about the process that runs the sweeps."""
    if refused := doctor_denial(command["user_id"], context.config):
        return refused
    examine = Command(
        action=Action.EXAMINE,
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        response_url=command.get("response_url", ""),
    )
    await context.send(str(DOCTOR), examine)
    return "Running checks… Results appear here in a few seconds. If not, no worker is running."


async def _history(context: HandlerContext, command: dict[str, Any]) -> str:
    """Let a worker read all results of a space. Raises UserError."""
    options = parse_options(first_word(command["text"])[1])
    if set(options) != {"space"}:
        raise UserError("Usage: `/sweep history space=lr`.")
    space = READERS["space"]("space", options["space"], context.config)
    ask = Command(
        action=Action.HISTORY,
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        response_url=command.get("response_url", ""),
    )
    await context.send(str(WorkItem(ItemKind.HISTORY, space)), ask)
    return f"Looking up {code(space)}… The answer appears here."


async def _admin(context: HandlerContext, command: dict[str, Any]) -> str:
    rest = first_word(command["text"])[1]
    if first_word(rest)[0] == "release":
        return await _release(context, command | {"text": rest})
    return await run_admin(context, rest, _sender(command))


async def _release(context: HandlerContext, command: dict[str, Any]) -> str:
    """Release a quarantined sweep, or another work item that the doctor reports."""
    item, user = first_word(unescape(command["text"]))[1].replace("`", ""), command["user_id"]
    refused = doctor_denial(user, context.config)
    write_entry(item, AuditEntry(at=context.now(), user=user, action=Action.RELEASE, refused=refused))
    if refused:
        return refused
    async with asyncio.timeout(ACK_TIMEOUT):
        if await context.queue.retry(WorkItem.parse(item)):
            return f"{code(item)} released. Sweepbot is retrying now."
        held = await context.queue.quarantined()
    names = listed([code(each) for each in sorted(held)[:MAX_NAMED]]) or "none"
    if not item:
        return f"Usage: `/sweep release NAME`. Quarantined: {names}."
    return f"{code(item)} isn't quarantined. Quarantined: {names}."


_WORDS: dict[str, Callable[[HandlerContext, dict[str, Any]], Awaitable[str]]] = {
    "doctor": _examine,
    "history": _history,
    "release": _release,
    "admin": _admin,
}


def requester_of(command: dict[str, Any]) -> Requester:
    return Requester(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        response_url=command.get("response_url", ""),
    )
