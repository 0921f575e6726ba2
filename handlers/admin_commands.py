"""Handle /sweep admin: workers answer, because they read the cluster."""

import asyncio

from bot.answers.command_parser import first_word
from bot.config.permissions import doctor_denial
from bot.core.commands import Action, AuditEntry, Command
from bot.core.errors import UserError
from bot.core.work_item import OPERATOR
from bot.launch.command_line import unescape
from bot.operator.causes import NO_WORKER
from bot.operator.words import ABOUT_ONE, COMMANDS, MAX_NAME
from bot.runtime.audit import write_entry
from bot.slack.mrkdwn import code
from handlers.context import ACK_TIMEOUT, HandlerContext
from handlers.sweep_commands import Sender

USAGE = "Usage: `/sweep admin ps`, `inspect SWEEP`, `retry SWEEP`, `release SWEEP`, or `recover`."


async def run_admin(context: HandlerContext, text: str, who: Sender) -> str:
    """Queue the command, and return the immediate reply. Raises UserError, RedisError, TimeoutError.

    `release` is handled by the caller: it needs no worker.
    """
    word, rest = first_word(unescape(text))
    name = rest.replace("`", "").strip()
    if word not in COMMANDS or bool(name) != (word in ABOUT_ONE) or len(name) > MAX_NAME:
        raise UserError(USAGE)
    refused = doctor_denial(who.user, context.config)
    entry = AuditEntry(at=context.now(), user=who.user, action=Action.OPERATE, about=word, refused=refused)
    write_entry(name, entry)
    if refused:
        return refused
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
