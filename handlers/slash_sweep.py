"""Handle /sweep: check the syntax at once, start a sweep or open the form, and acknowledge `doctor`, `admin`,
`history`, and `release`; workers check everything else.

Commands on one sweep are in `sweep_commands`. Workers answer the others, because they read the cluster,
except `release`, which needs no worker.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action, AuditEntry
from bot.core.request import Requester
from bot.core.work_item import DOCTOR, OPERATOR, ItemKind, WorkItem
from bot.operate.words import NO_WORKER
from bot.platform.commands.grammar import Command as TypedCommand
from bot.platform.config.permissions import doctor_denial
from bot.platform.runtime.audit import write_entry
from bot.platform.slack.mrkdwn import code
from bot.sweep.launch.command_line import complete, missing_options
from bot.sweep.launch.options import LAUNCH
from bot.text.wording import listed
from handlers.any_wording import add_command
from handlers.context import ACK_TIMEOUT, HandlerContext, request_id_of, trigger_of
from handlers.launch_form import open_form, refused_launch
from handlers.settings import ME, answer_me, open_setup
from handlers.slash_token import REVOKE, answer_token, revoke_of
from handlers.sweep_commands import HELP, SWEEP, Sender, handle_command, sender_of

MAX_NAMED = 10  # quarantined items in a reply


async def _operate(context: HandlerContext, typed: TypedCommand, rest: str, who: Sender) -> str:
    """Queue the command, and return the immediate reply. Raises UserError, RedisError, TimeoutError."""
    word, name = typed.name.split()[-1], SWEEP.read(typed, rest).values().get("sweep", "")
    refused = doctor_denial(who.user, context.config)
    entry = AuditEntry(at=context.now(), user=who.user, action=Action.OPERATE, about=word, refused=refused)
    write_entry(name, entry)
    if refused:
        return refused
    async with asyncio.timeout(ACK_TIMEOUT):
        if not await context.has_worker():
            return str(NO_WORKER)
    await context.send(str(OPERATOR), who.command(Action.OPERATE, changes=f"{word} {name}".strip()))
    return f"Running {code(word)}… The answer appears {who.answered} in a few seconds."


async def _examine(context: HandlerContext, _typed: TypedCommand, _rest: str, who: Sender) -> str:
    """Let a worker run the checks: they are about the process that runs the sweeps."""
    if refused := doctor_denial(who.user, context.config):
        return refused
    await context.send(str(DOCTOR), who.command(Action.EXAMINE))
    results = f"Results appear {who.answered} in a few seconds."
    return f"Running checks… {results} If not, check that workers are running."


async def _history(context: HandlerContext, typed: TypedCommand, rest: str, who: Sender) -> str:
    """Let a worker read all results of a space. Raises UserError."""
    space = SWEEP.read(typed, rest).values()["space"]
    await context.send(str(WorkItem(ItemKind.HISTORY, space)), who.command(Action.HISTORY))
    return f"Looking up {code(space)}… The answer appears {who.answered}."


async def _release(context: HandlerContext, typed: TypedCommand, rest: str, who: Sender) -> str:
    """Release a quarantined sweep, or another work item that the doctor reports."""
    item, refused = SWEEP.read(typed, rest).values()["name"], doctor_denial(who.user, context.config)
    write_entry(item, AuditEntry(at=context.now(), user=who.user, action=Action.RELEASE, refused=refused))
    if refused:
        return refused
    async with asyncio.timeout(ACK_TIMEOUT):
        if await context.queue.retry(WorkItem.parse(item)):
            return f"{code(item)} released. Sweepbot is retrying now."
        held = await context.queue.quarantined()
    names = listed([code(each) for each in sorted(held)[:MAX_NAMED]]) or "none"
    return f"{code(item)} isn't quarantined. Quarantined: {names}."


# By first word. Each raises UserError, RedisError, and TimeoutError.
ANSWERS: dict[str, Callable[[HandlerContext, TypedCommand, str, Sender], Awaitable[str]]] = {
    "doctor": _examine,
    "history": _history,
    "release": _release,
    "admin": _operate,
}

GREETING_TIMEOUT = 0.5  # seconds


def add_sweep(app: AsyncApp, context: HandlerContext) -> None:
    add_command(app, context, SWEEP, _answer)


async def _greet(context: HandlerContext, user: str) -> None:
    if not context.channel_setup.is_new(user):
        return
    with contextlib.suppress(RedisError, TimeoutError):
        async with asyncio.timeout(GREETING_TIMEOUT):
            await context.channel_setup.queue_greeting(user)


async def _answer(context: HandlerContext, command: dict[str, Any], client: AsyncWebClient) -> str:
    """Return the reply; "" if a form is open. Raises UserError, RedisError, TimeoutError."""
    await _greet(context, command["user_id"])
    text = command.get("text", "")
    typed, rest = SWEEP.find(text)
    if typed is LAUNCH:
        return await _launch(context, command, rest, client)
    if typed.name == "help":
        return HELP
    if typed.name == "setup":
        return await open_setup(context, client, command)
    if typed is ME:
        return await answer_me(context, rest, command, client)
    if typed is REVOKE:
        return await revoke_of(context, typed, rest, command["user_id"])
    if typed.name.startswith("token"):
        return await answer_token(context, typed, rest, command)
    if answer := ANSWERS.get(typed.name.split()[0]):
        return await answer(context, typed, rest, sender_of(command))
    return await handle_command(context, text, sender_of(command))


async def _launch(context: HandlerContext, command: dict[str, Any], text: str, client: AsyncWebClient) -> str:
    """Start a sweep, or open the form for an incomplete command."""
    if refusal := refused_launch(context, command["user_id"], command["channel_id"]):
        return refusal
    typed = SWEEP.read(LAUNCH, text)
    if not typed.errors and missing_options(typed.options):
        user, channel = command["user_id"], command["channel_id"]
        return await open_form(context, client, trigger_of(command), user, channel, dict(typed.options))
    request = complete(typed, context.config, command["user_id"])
    record = await context.create_sweep(request, requester_of(command), request_id_of(command))
    branch = code(record.request.branch)
    return f"Sweep `{record.id}` queued. Its thread opens here once {branch} is checked."


def requester_of(command: dict[str, Any]) -> Requester:
    return Requester(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        response_url=command.get("response_url", ""),
    )
