"""What is said about sweeps there are, by a word after /sweep or a mention in a thread."""

import asyncio
from dataclasses import dataclass

from bot.core.commands import Action, Command
from bot.core.record import SweepRecord
from bot.core.sweep_summary import Entry
from bot.slack.mrkdwn import code
from bot.sweeps import reply_messages
from bot.sweeps.command_parser import COMMANDS, choose, first_word, parse_command, selected
from handlers.context import PATIENCE, HandlerContext


@dataclass(frozen=True, kw_only=True)
class Sender:
    user: str
    user_name: str
    channel: str
    request_id: str  # Slack's id of what was said
    response_url: str = ""
    here: str = ""  # the sweep in whose thread it was said


def is_command(text: str) -> bool:
    return first_word(text)[0] in {"list", *COMMANDS}


async def handle_command(context: HandlerContext, text: str, who: Sender) -> str:
    """The answer at once. Raises UserError, RedisError, TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        sweeps = await context.store.listed()
    word, which = first_word(text)
    if word == "list":
        return reply_messages.listing(selected(which, who.user, sweeps, context.config))
    parsed = choose(parse_command(text, who.here), who.user, sweeps, context.config)
    sweep = parsed.sweep
    if parsed.action is Action.STATUS and (known := await _known(context, sweep)):
        return reply_messages.status(known)
    ask = Command(
        action=parsed.action,
        user=who.user,
        user_name=who.user_name,
        response_url=who.response_url,
        trial=parsed.trial,
        trials=parsed.trials,
        changes=parsed.changes,
        request_id=who.request_id if parsed.action is Action.RERUN else "",
        channel=who.channel if parsed.action is Action.RERUN else "",
        in_thread=bool(who.here),
    )
    await context.send(sweep, ask, once=who.request_id if who.here else "")
    if parsed.action.is_read_only:
        return f"One moment: the answer about {code(sweep)} comes here."
    return f"Asked {code(sweep)}; its thread tells what becomes of it."


async def _known(context: HandlerContext, sweep_id: str) -> SweepRecord | None:
    async with asyncio.timeout(PATIENCE):
        return next(iter(await context.store.records([sweep_id])), None)


async def sweep_in(context: HandlerContext, channel: str, thread: str) -> Entry | None:
    """The sweep whose thread this is."""
    async with asyncio.timeout(PATIENCE):
        sweeps = await context.store.listed()
    return next((s for s in sweeps if s.thread == thread and s.channel == channel), None)
