"""What is said about sweeps there are, by a word after /sweep or a mention in a thread."""

import asyncio
from dataclasses import dataclass

from bot import answers
from bot.entries import Entry
from bot.models import Act, Ask, SweepRecord
from bot.mrkdwn import code
from bot.wishes import WORDS, choose, read_wish, selected, word_of
from handlers.door import PATIENCE, Door


@dataclass(frozen=True, kw_only=True)
class Speaker:
    user: str
    user_name: str
    channel: str
    delivery: str  # Slack's id of what was said
    response_url: str = ""
    here: str = ""  # the sweep in whose thread it was said


def is_wish(text: str) -> bool:
    return word_of(text)[0] in {"list", *WORDS}


async def hear(door: Door, text: str, who: Speaker) -> str:
    """The answer at once. Raises UserError, RedisError, TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        sweeps = await door.store.listed()
    word, which = word_of(text)
    if word == "list":
        return answers.listing(selected(which, who.user, sweeps, door.config))
    wish = choose(read_wish(text, who.here), who.user, sweeps, door.config)
    sweep = wish.sweep
    if wish.act is Act.STATUS and (known := await _known(door, sweep)):
        return answers.status(known)
    ask = Ask(
        act=wish.act,
        user=who.user,
        user_name=who.user_name,
        response_url=who.response_url,
        trial=wish.trial,
        trials=wish.trials,
        changes=wish.changes,
        delivery=who.delivery if wish.act is Act.RERUN else "",
        channel=who.channel if wish.act is Act.RERUN else "",
        in_thread=bool(who.here),
    )
    await door.ask(sweep, ask, once=who.delivery if who.here else "")
    if wish.act.leaves_alone:
        return f"One moment: the answer about {code(sweep)} comes here."
    return f"Asked {code(sweep)}; its thread tells what becomes of it."


async def _known(door: Door, sweep_id: str) -> SweepRecord | None:
    async with asyncio.timeout(PATIENCE):
        return next(iter(await door.store.records([sweep_id])), None)


async def sweep_in(door: Door, channel: str, thread: str) -> Entry | None:
    """The sweep whose thread this is."""
    async with asyncio.timeout(PATIENCE):
        sweeps = await door.store.listed()
    return next((s for s in sweeps if s.thread == thread and s.channel == channel), None)
