"""Answer commands on a sweep whose record was deleted, from its stored results, or whose record is of a newer
Sweepbot, as after a downgrade.
"""

import asyncio
import logging
from hashlib import sha256

from slack_sdk.errors import SlackApiError

from bot.core.commands import Action, Command, dump_command
from bot.core.errors import UserError
from bot.platform.clients import Clients
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.message import File, Message
from bot.platform.slack.mrkdwn import plain
from bot.platform.storage.work_queue import Lease
from bot.sweep.answers.messages import with_note
from bot.sweep.clients import SweepClients
from bot.sweep.reports.end_results import stored_results
from bot.sweep.reports.past_sweeps import compare
from bot.sweep.results.csv_file import csv_text
from bot.sweep.results.models import SweepResults
from bot.sweep.results.table import best_table
from bot.text.wording import counted

log = logging.getLogger(__name__)


async def answer_without_record(command: Command, sweep_id: str, clients: SweepClients) -> None:
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


async def _answer(command: Command, sweep_id: str, clients: SweepClients) -> None:
    slack = clients.slack
    results = await stored_results(sweep_id, clients)
    if results is None:
        raise UserError(f"No sweep named `{sweep_id}`. Find its name with `/sweep list`.")
    if command.action is Action.RESULTS:
        text = f"All trials of `{sweep_id}`"
        message = with_note(_table(results), f"{text}: file sent by direct message.")
        await slack.post_ephemeral(command.user, message, command.response_url)
        sheet = await asyncio.to_thread(csv_text, results)
        await slack.send_file(command.user, text, File(name=f"{sweep_id}.csv", content=sheet))
    elif command.action is Action.COMPARE:
        message, picture = await compare([sweep_id, *command.changes.split()], clients)
        await slack.post_ephemeral(command.user, message, command.response_url)
        if picture:
            file = File(name="comparison.png", content=picture.png, alt=picture.alt)
            await slack.send_file(command.user, picture.text, file)
    else:
        raise UserError(
            f"`{sweep_id}` ended on {results.ended:%Y-%m-%d}; only its results are kept. "
            f"*Fix:* Use `/sweep results {sweep_id}` or `/sweep compare`."
        )


def _table(results: SweepResults) -> Message:
    trials = counted(len(results.trials) + results.omitted, "trial")
    return best_table(results) or Message(text=f"None of {trials} has a finite objective.")


ANSWERED_AFTER = 6  # failures in a row, about a minute: an update of the workers is faster


async def answer_about_newer_version(lease: Lease, clients: Clients) -> None:
    """Answer each waiting command once a day. Raises NewerFormatError for a command of a newer version.

    During an update a newer worker applies them within seconds. After a downgrade no worker can, so the
    person who gave the command gets an answer. The command is kept for the newer version.
    """
    if lease.failures < ANSWERED_AFTER:
        return
    sweep = lease.item.key
    text = (
        f"`{sweep}` was last changed by a newer version of Sweepbot than the one running now, so it can't "
        "be read or changed. *Fix:* Ask an admin to finish the update, or to undo the downgrade. Your "
        "request waits until then."
    )
    for command in await clients.store.commands(sweep):
        hashed = sha256(dump_command(command).encode()).hexdigest()[:16]
        if await clients.store.is_new(f"newer-version/{sweep}/{hashed}"):
            await clients.slack.post_ephemeral(command.user, text, command.response_url)
