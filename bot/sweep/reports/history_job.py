"""Answer `/sweep history` from the stored results of a space's ended sweeps: the job of one work item."""

import asyncio
from functools import partial

from bot.core.work_item import ItemKind, WorkItem
from bot.sweep.clients import SweepClients
from bot.sweep.results.history import history, past_sweep


def item(space: str) -> WorkItem:
    return WorkItem(ItemKind.HISTORY, space)


async def answer_commands(space: str, clients: SweepClients) -> None:
    """Answer all waiting requests, with one read. Raises ApiError and UnreachableError."""
    key = str(item(space))
    commands = await clients.store.commands(key)
    if not commands:
        return
    found = [past_sweep(each) async for each in clients.kept_results.of_space(space)]
    past = [each for each in found if each]
    message = await asyncio.to_thread(partial(history, space, past))
    for command in commands:
        await clients.answer(command, key, message)
