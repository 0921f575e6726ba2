"""Answer commands on sweeps that only a newer Sweepbot can read.

During an update a newer worker applies them within seconds. After a downgrade no worker can, so the person
who gave the command gets an answer. The command is kept for the newer version.
"""

from hashlib import sha256

from bot.clients import Clients
from bot.core.commands import Command, dump_command
from bot.storage.work_queue import Lease

ANSWERED_AFTER = 6  # failures in a row, about a minute: an update of the workers is faster


async def answer_about_newer_version(lease: Lease, clients: Clients) -> None:
    """Answer each waiting command once a day. Raises NewerFormatError for a command of a newer version."""
    if lease.failures < ANSWERED_AFTER:
        return
    sweep = lease.item.key
    text = (
        f"`{sweep}` was last changed by a newer version of Sweepbot than the one that runs now, so it can't "
        "be read or changed. *Fix:* Ask an admin to finish the update, or to undo the downgrade. Your "
        "request waits until then."
    )
    for command in await clients.store.commands(sweep):
        if await clients.store.is_new(_answer_id(sweep, command)):
            await clients.slack.post_ephemeral(command.user, text, command.response_url)


def _answer_id(sweep: str, command: Command) -> str:
    return f"newer-version/{sweep}/{sha256(dump_command(command).encode()).hexdigest()[:16]}"
