"""Answer `/sweep history` from the stored results of a space's ended sweeps: the job of one work item."""

import asyncio
import logging
from functools import partial

from slack_sdk.errors import SlackApiError

from bot.clients import Clients
from bot.core.work_item import ItemKind, WorkItem
from bot.results.history import history, past_sweep
from bot.slack.client import MessageRejectedError, NotInChannelError

log = logging.getLogger(__name__)


def item(space: str) -> WorkItem:
    return WorkItem(ItemKind.HISTORY, space)


async def answer_commands(space: str, clients: Clients) -> None:
    """Answer all waiting requests, with one read. Raises ApiError and UnreachableError."""
    key = str(item(space))
    commands = await clients.store.commands(key)
    if not commands:
        return
    found = [past_sweep(each) async for each in clients.kept_results.of_space(space)]
    past = [each for each in found if each]
    message = await asyncio.to_thread(partial(history, space, past))
    for command in commands:
        try:
            await clients.slack.post_ephemeral(command.user, message, command.response_url)
        except (NotInChannelError, MessageRejectedError, SlackApiError) as error:
            log.warning("Slack rejected the history of %s: %s", space, error)
        await clients.store.remove_commands(key, [command])
