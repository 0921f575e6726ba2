"""Handle commands on existing sweeps, from /sweep or a mention in a thread."""

import asyncio
from dataclasses import dataclass
from typing import Any

from bot.answers import messages
from bot.answers.command_parser import COMMANDS, choose, first_word, parse_command, selected
from bot.core.commands import Action, Command
from bot.core.record import SweepRecord
from bot.core.sweep_summary import SweepSummary
from bot.core.work_item import QUEUE
from bot.slack.mrkdwn import code
from handlers.context import ACK_TIMEOUT, HandlerContext

STARTS_SWEEP = {Action.RERUN, Action.PROMOTE}  # start one in this channel


@dataclass(frozen=True, kw_only=True)
class Sender:
    user: str
    user_name: str
    channel: str
    request_id: str  # of the Slack request
    response_url: str = ""
    here: str = ""  # the sweep in whose thread the command was written


def sender_of(command: dict[str, Any]) -> Sender:
    return Sender(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        request_id=command["trigger_id"],
        response_url=command.get("response_url", ""),
    )


def is_command(text: str) -> bool:
    return first_word(text)[0] in {"list", *COMMANDS}


async def handle_command(context: HandlerContext, text: str, who: Sender) -> str:
    """Answer or queue a command; return the immediate reply.

    Raises UserError, RedisError, TimeoutError.
    """
    async with asyncio.timeout(ACK_TIMEOUT):
        sweeps = await context.store.listed()
    word, which = first_word(text)
    if word == "list":
        return messages.listing(selected(which, who.user, sweeps, context.config))
    typed = parse_command(text, who.here)
    if typed.action is Action.QUEUE:
        return await _ask_queue(context, who)
    parsed = choose(typed, who.user, sweeps, context.config)
    sweep = parsed.sweep
    if parsed.action is Action.STATUS and (record := await _record(context, sweep)):
        return messages.status(record)
    command = Command(
        action=parsed.action,
        user=who.user,
        user_name=who.user_name,
        response_url=who.response_url,
        trial=parsed.trial,
        trials=parsed.trials,
        queue=parsed.queue,
        changes=parsed.changes or " ".join(parsed.others),
        request_id=who.request_id if parsed.action in STARTS_SWEEP else "",
        channel=who.channel if parsed.action in STARTS_SWEEP else "",
        in_thread=bool(who.here),
    )
    await context.send(sweep, command, once=who.request_id if who.here else "")
    if parsed.action.is_read_only:
        return f"Looking up {code(sweep)}… The answer appears here."
    return f"Request sent to {code(sweep)}. The result appears in its thread."


async def _ask_queue(context: HandlerContext, who: Sender) -> str:
    ask = Command(action=Action.QUEUE, user=who.user, user_name=who.user_name, response_url=who.response_url)
    await context.send(str(QUEUE), ask)
    return "Reading the queues… The answer appears here."


async def _record(context: HandlerContext, sweep_id: str) -> SweepRecord | None:
    async with asyncio.timeout(ACK_TIMEOUT):
        return next(iter(await context.store.records([sweep_id])), None)


async def sweep_in(context: HandlerContext, channel: str, thread: str) -> SweepSummary | None:
    """Return the sweep that this thread belongs to, or None."""
    async with asyncio.timeout(ACK_TIMEOUT):
        sweeps = await context.store.listed()
    return next((s for s in sweeps if s.thread == thread and s.channel == channel), None)
