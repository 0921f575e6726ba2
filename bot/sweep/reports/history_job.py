"""Answer `/sweep history` from the stored results of a space's ended sweeps: the job of one work item."""

import asyncio

from bot.core.work_item import ItemKind, WorkItem
from bot.sweep.clients import SweepClients
from bot.sweep.results.history import history, message, past_sweep


def item(space: str) -> WorkItem:
    return WorkItem(ItemKind.HISTORY, space)


async def answer_commands(space: str, clients: SweepClients) -> None:
    """Answer all waiting requests, with one read, and a call of Slack for each link.

    Raises ApiError and UnreachableError.
    """
    key = str(item(space))
    commands = await clients.store.commands(key)
    if not commands:
        return
    found = [past_sweep(each) async for each in clients.kept_results.of_space(space)]
    past = [each for each in found if each]
    chosen = await asyncio.to_thread(history, past)
    threads = [each for each in chosen.shown.values() if each.thread] if chosen else []
    urls = await asyncio.gather(*(clients.slack.permalink(each.channel, each.thread) for each in threads))
    links = {each.name: url for each, url in zip(threads, urls, strict=True)}
    for command in commands:
        await clients.answer(command, key, message(space, chosen, links))
