"""Handle commands on existing sweeps, from /sweep or a mention in a thread: answer `list` and `status` at
once, queue the others, and say where their answer appears.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from bot.core.commands import Action, Command
from bot.core.sweep_summary import SweepSummary
from bot.core.work_item import QUEUE
from bot.operate.words import SLACK_COMMANDS
from bot.platform.commands.grammar import Table
from bot.platform.slack.mrkdwn import code
from bot.sweep.answers import messages
from bot.sweep.answers.command_parser import (
    CHANNEL_COMMANDS,
    TABLE,
    choose,
    help_text,
    parse_command,
    selected,
)
from bot.sweep.launch.options import EXAMPLE
from handlers.context import ACK_TIMEOUT, HandlerContext, request_id_of
from handlers.settings import ME
from handlers.slash_token import COMMANDS as TOKEN_COMMANDS
from handlers.slash_token import GROUP as OWN
from handlers.slash_token import REVOKE

SWEEP = Table(
    prefix="/sweep",
    commands=(*TABLE.commands, *CHANNEL_COMMANDS, *TOKEN_COMMANDS, ME, *SLACK_COMMANDS, REVOKE),
    note=f" To start a sweep: {EXAMPLE}. All commands: `/sweep help`.",
)
HELP = f"{help_text(SWEEP)}\n{SWEEP.help_of(OWN)}"


@dataclass(frozen=True, kw_only=True)
class Sender:
    user: str
    user_name: str
    channel: str
    request_id: str  # of the Slack request
    response_url: str = ""
    here: str = ""  # the sweep in whose thread the command was written
    via: str = ""  # as in Command

    @property
    def answered(self) -> str:
        """Return where a worker's answer appears: only commands have a place of their own for it."""
        return "here" if self.response_url else "in your direct messages"

    def command(self, action: Action, **more: Any) -> Command:
        return Command(
            action=action, user=self.user, user_name=self.user_name, response_url=self.response_url, **more
        )


def sender_of(command: dict[str, Any]) -> Sender:
    return Sender(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        request_id=request_id_of(command),
        response_url=command.get("response_url", ""),
        here=command.get("here", ""),
    )


async def handle_command(context: HandlerContext, text: str, who: Sender) -> str:
    """Answer or queue a command; return the immediate reply.

    Raises UserError, RedisError, TimeoutError.
    """
    async with asyncio.timeout(ACK_TIMEOUT):
        sweeps = await context.store.listed()
    typed, rest = TABLE.find(text)
    if typed.name == "list":
        which = TABLE.read(typed, rest).values().get("list", "")
        return messages.listing(selected(which, who.user, sweeps, context.config))
    command = parse_command(text, who.here)
    if command.action is Action.QUEUE:
        await context.send(str(QUEUE), who.command(Action.QUEUE))
        return f"Reading the queues… The answer appears {who.answered}."
    parsed = choose(command, who.user, sweeps, context.config)
    sweep = parsed.sweep
    if parsed.action is Action.STATUS:
        async with asyncio.timeout(ACK_TIMEOUT):
            records = await context.store.records([sweep])
        if records:
            return context.mask(messages.status(records[0]))
    queued = who.command(
        parsed.action,
        trial=parsed.trial,
        **{"changes": " ".join(parsed.others), **parsed.options},
        request_id=who.request_id if parsed.action.starts_sweep else "",
        channel=who.channel if parsed.action.starts_sweep else "",
        in_thread=bool(who.here),
        via=who.via,
    )
    await context.send(sweep, queued, once=who.request_id)
    if who.here:
        return ""
    if parsed.action.is_read_only:
        return f"Looking up {code(sweep)}… The answer appears {who.answered}."
    return f"Request sent to {code(sweep)}. The result appears in its thread."


async def sweep_in(context: HandlerContext, channel: str, thread: str) -> SweepSummary | None:
    """Return the sweep that this thread belongs to, or None."""
    async with asyncio.timeout(ACK_TIMEOUT):
        sweeps = await context.store.listed()
    return next((s for s in sweeps if s.thread == thread and s.channel == channel), None)
