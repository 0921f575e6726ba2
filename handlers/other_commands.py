"""Handle the words of /sweep about no single sweep: doctor, history, release, and admin.

Workers answer them, because they read the cluster, except `release`, which needs no worker.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bot.answers.command_parser import first_word
from bot.config.permissions import doctor_denial
from bot.core.commands import Action, AuditEntry, Command
from bot.core.errors import UserError
from bot.core.work_item import DOCTOR, OPERATOR, ItemKind, WorkItem
from bot.launch.command_line import parse_options, unescape
from bot.launch.options import READERS
from bot.operator.words import ABOUT_ONE, COMMANDS, MAX_NAME, NO_WORKER
from bot.runtime.audit import write_entry
from bot.slack.mrkdwn import code
from bot.text.wording import listed
from handlers.context import ACK_TIMEOUT, HandlerContext
from handlers.sweep_commands import Sender, sender_of

MAX_NAMED = 10  # quarantined items in a reply
USAGE = "Usage: `/sweep admin ps`, `inspect SWEEP`, `retry SWEEP`, `release SWEEP`, or `recover`."


async def _run(context: HandlerContext, text: str, who: Sender) -> str:
    """Queue the command, and return the immediate reply. Raises UserError, RedisError, TimeoutError."""
    word, rest = first_word(unescape(text))
    name = rest.replace("`", "").strip()
    refused = doctor_denial(who.user, context.config)
    entry = AuditEntry(
        at=context.now(), user=who.user, action=Action.OPERATE, about=word[:MAX_NAME], refused=refused
    )
    write_entry(name[:MAX_NAME], entry)
    if refused:
        return refused
    if word not in COMMANDS or bool(name) != (word in ABOUT_ONE) or len(name) > MAX_NAME:
        raise UserError(USAGE)
    async with asyncio.timeout(ACK_TIMEOUT):
        if not await context.has_worker():
            return f"{NO_WORKER.text} *Fix:* {NO_WORKER.fix}"
    command = Command(
        action=Action.OPERATE,
        user=who.user,
        user_name=who.user_name,
        response_url=who.response_url,
        changes=f"{word} {name}".strip(),
    )
    await context.send(str(OPERATOR), command)
    return f"Running {code(word)}… The answer appears here in a few seconds."


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
    rest = first_word(command["text"])[1]
    options = parse_options(rest) if "=" in rest else {"space": rest}
    if set(options) != {"space"} or not rest:
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
    return await _run(context, rest, sender_of(command))


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


# Each raises UserError, RedisError, and TimeoutError.
WORDS: dict[str, Callable[[HandlerContext, dict[str, Any]], Awaitable[str]]] = {
    "doctor": _examine,
    "history": _history,
    "release": _release,
    "admin": _admin,
}
