"""Answer commands on a sweep whose record is gone, from the results that were stored at its end."""

import asyncio
import logging

from slack_sdk.errors import SlackApiError

from bot.answers.messages import with_note
from bot.clients import Clients
from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.reports.compare import compare
from bot.reports.end_results import stored_results
from bot.results.csv_file import csv_text
from bot.results.models import SweepResults
from bot.results.table import best_table
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.slack.message import Message
from bot.slack.mrkdwn import plain
from bot.text.wording import counted

log = logging.getLogger(__name__)


async def answer_without_record(command: Command, sweep_id: str, clients: Clients) -> None:
    """Answer the person who gave the command; an answer that Slack rejects is only logged.

    Raises ApiError and UnreachableError if a retry can help, SlackBusyError to answer again later.
    """
    slack = clients.slack
    try:
        await _answer(command, sweep_id, clients)
    except UserError as error:
        await slack.post_ephemeral(command.user, plain(str(error)), command.response_url)
    except (NotInChannelError, MessageRejectedError, SlackApiError) as error:
        log.warning("Slack rejected an answer about %s: %s", sweep_id, error)


async def _answer(command: Command, sweep_id: str, clients: Clients) -> None:
    slack = clients.slack
    results = await stored_results(sweep_id, clients)
    if results is None:
        raise UserError(f"No sweep named `{sweep_id}`. Find its name with `/sweep list`.")
    if command.action is Action.RESULTS:
        text = f"All trials of `{sweep_id}`"
        message = with_note(_table(results), f"{text}: file sent by direct message.")
        await slack.post_ephemeral(command.user, message, command.response_url)
        sheet = await asyncio.to_thread(csv_text, results)
        await slack.send_file(command.user, text, f"{sweep_id}.csv", sheet)
    elif command.action is Action.COMPARE:
        message, picture = await compare([sweep_id, *command.changes.split()], clients)
        await slack.post_ephemeral(command.user, message, command.response_url)
        if picture:
            await slack.send_file(command.user, picture.text, "comparison.png", picture.png, alt=picture.alt)
    else:
        raise UserError(
            f"`{sweep_id}` ended on {results.ended:%Y-%m-%d}; only its results are kept. "
            f"*Fix:* Use `/sweep results {sweep_id}` or `/sweep compare`."
        )


def _table(results: SweepResults) -> Message:
    trials = counted(len(results.trials) + results.omitted, "trial")
    return best_table(results) or Message(text=f"None of {trials} has a finite objective.")
