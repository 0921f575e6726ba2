"""Handle a sweep whose cluster doesn't answer: it waits, however long, and says so in its parent message."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from bot.clients import Clients
from bot.core.record import SweepRecord
from bot.messages.clusters import unseen_line
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.sweeps.notifier import Notifier
from k8s.errors import ClusterAwayError

LOOK_AGAIN = timedelta(seconds=15)  # costs no request while the cluster is away (k8s.remote)

Save = Callable[[SweepRecord], Awaitable[SweepRecord]]


async def report_away(
    sweep_id: str, away: ClusterAwayError, notifier: Notifier, save: Save, clients: Clients
) -> timedelta:
    """Show since when the cluster hasn't answered, and answer questions. Return when to try again.

    It is no failure of the sweep: commands that change it wait, and a cancel is confirmed afterwards.
    """
    sweep = await clients.store.get(sweep_id)
    if sweep is None:
        return LOOK_AGAIN
    if sweep.unseen_since is None or sweep.unseen_reason != _reason(away):
        since = sweep.unseen_since or away.seen or clients.now()
        sweep = await save(replace(sweep, unseen_since=since, unseen_reason=_reason(away)))
    with suppress(ClusterAwayError):  # the results at a sweep's end are in the cluster
        sweep = await notifier.post_outbox(sweep)
    await notifier.update_parent(sweep)
    await _answer_questions(sweep, clients)
    return max(LOOK_AGAIN, notifier.pause or LOOK_AGAIN)


def seen_again(sweep: SweepRecord) -> SweepRecord:
    return replace(sweep, unseen_since=None, unseen_reason="") if sweep.unseen_since else sweep


def _reason(away: ClusterAwayError) -> str:
    """Return what an admin has to know; "" if the cluster only doesn't answer."""
    return f"{away.why}. *Fix:* {away.fix}" if away.fix else ""


async def _answer_questions(sweep: SweepRecord, clients: Clients) -> None:
    text = f"Can't answer about `{sweep.id}` now. {unseen_line(sweep)}"
    for command in await clients.store.commands(sweep.id):
        if command.action.is_read_only:
            with suppress(NotInChannelError, MessageRejectedError):
                await clients.slack.post_ephemeral(command.user, text, command.response_url)
            await clients.store.remove_commands(sweep.id, [command])
