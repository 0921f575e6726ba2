"""Handle a sweep whose cluster doesn't answer: it waits, however long, and its parent message shows it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from bot.clients import Clients
from bot.core.commands import Action, Command
from bot.core.record import SweepRecord
from bot.lifecycle.observation import Observation
from bot.messages.clusters import unseen_line
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.slack.mrkdwn import plain
from bot.sweeps.notifier import Notifier
from k8s.api.errors import ClusterUnreachableError

RETRY = timedelta(seconds=15)  # costs no request while the cluster is unreachable (k8s.api.remote)

NEEDS_CLUSTER = {Action.LOGS, Action.TRIALS}

Save = Callable[[SweepRecord], Awaitable[SweepRecord]]
Respond = Callable[[Command, SweepRecord, Observation], Awaitable[None]]


async def report_unreachable(
    sweep_id: str,
    failure: ClusterUnreachableError,
    notifier: Notifier,
    save: Save,
    clients: Clients,
    respond: Respond,
) -> timedelta | None:
    """Show since when the cluster hasn't answered, and answer questions. Return when to try again.

    It is no failure of the sweep: commands that change it wait, and a cancel is confirmed afterwards. An
    ended sweep that nothing waits for isn't tried again.

    Args:
        respond: answers a question from an observation.
    """
    sweep = await clients.store.get(sweep_id)
    if sweep is None:
        return RETRY
    if sweep.phase.final and not sweep.outbox and sweep.durable_phase is sweep.phase:
        await _answer_about_ended(sweep, failure, clients, respond)
        if not await clients.store.commands(sweep.id):
            return None
    if sweep.unseen_since is None or sweep.unseen_reason != _reason(failure):
        since = sweep.unseen_since or failure.seen or clients.now()
        sweep = await save(replace(sweep, unseen_since=since, unseen_reason=_reason(failure)))
    with suppress(ClusterUnreachableError):  # the results at a sweep's end are in the cluster
        sweep = await notifier.post_outbox(sweep)
    await notifier.update_parent(sweep)
    await _answer_questions(sweep, clients)
    return max(RETRY, notifier.pause or RETRY)


def seen_again(sweep: SweepRecord) -> SweepRecord:
    return replace(sweep, unseen_since=None, unseen_reason="") if sweep.unseen_since else sweep


def _reason(failure: ClusterUnreachableError) -> str:
    """Return what an admin has to know; "" if the cluster only doesn't answer."""
    return f"{failure.why}. *Fix:* {failure.fix}" if failure.fix else ""


async def _answer_about_ended(
    sweep: SweepRecord, failure: ClusterUnreachableError, clients: Clients, respond: Respond
) -> None:
    """Answer from what the home cluster stores of an ended sweep: its cluster can be gone forever."""
    for command in await _questions(sweep, clients):
        if command.action in NEEDS_CLUSTER:
            fix = f" *Fix:* {failure.fix}" if failure.fix else ""
            await _decline(
                command, f"Can't answer about `{sweep.id}` now: {plain(f'{failure}.{fix}')}", clients
            )
        else:
            await respond(command, sweep, Observation())
        await clients.store.remove_commands(sweep.id, [command])


async def _answer_questions(sweep: SweepRecord, clients: Clients) -> None:
    for command in await _questions(sweep, clients):
        await _decline(command, f"Can't answer about `{sweep.id}` now. {unseen_line(sweep)}", clients)
        await clients.store.remove_commands(sweep.id, [command])


async def _questions(sweep: SweepRecord, clients: Clients) -> list[Command]:
    return [each for each in await clients.store.commands(sweep.id) if each.action.is_read_only]


async def _decline(command: Command, text: str, clients: Clients) -> None:
    with suppress(NotInChannelError, MessageRejectedError):
        await clients.slack.post_ephemeral(command.user, text, command.response_url)
