"""Handle a sweep whose cluster doesn't answer: it waits, however long, and its parent message shows it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from bot.core.commands import Action, Command
from bot.core.record import SweepRecord
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.mrkdwn import plain
from bot.platform.storage.work_queue import Lease
from bot.sweep.clients import SweepClients
from bot.sweep.lifecycle.trouble import unreachable, unreachable_line
from bot.sweep.model.observation import Observation
from bot.sweep.sweeps.notifier import Notifier
from k8s.api.errors import ClusterUnreachableError
from k8s.retry import Retry

RETRY = Retry(base=15.0)  # costs no request while the cluster is unreachable (k8s.api.remote)

NEEDS_CLUSTER = {Action.LOGS, Action.SHOW, Action.TRIALS}

Save = Callable[[SweepRecord], Awaitable[SweepRecord]]
Respond = Callable[[Command, SweepRecord, Observation], Awaitable[None]]


async def report_unreachable(
    lease: Lease,
    failure: ClusterUnreachableError,
    notifier: Notifier,
    save: Save,
    clients: SweepClients,
    respond: Respond,
) -> timedelta | None:
    """Show since when the cluster hasn't answered, and answer questions. Return when to try again.

    It is no failure of the sweep: commands that change it wait, and a cancel is confirmed afterwards. An
    ended sweep that nothing waits for isn't tried again.

    Args:
        respond: answers a question from an observation.
    """
    sweep = await clients.store.get(lease.item.key)
    if sweep is None:
        return RETRY.delay()
    if sweep.phase.final and not sweep.outbox and sweep.durable_phase is sweep.phase:
        await _answer_about_ended(sweep, lease, failure, clients, respond)
        if not await clients.store.commands(sweep.id):
            return None
    if (after := unreachable(sweep, failure.seen or clients.now(), _reason(failure))) != sweep:
        sweep = await save(after)
    with suppress(ClusterUnreachableError):  # the results at a sweep's end are in the cluster
        sweep = await notifier.post_outbox(sweep)
    await notifier.update_parent(sweep)
    await _answer_questions(sweep, lease, clients)
    return max(RETRY.delay(), notifier.pause or timedelta())


def _reason(failure: ClusterUnreachableError) -> str:
    """Return what an admin has to know; "" if the cluster only doesn't answer."""
    return f"{failure.why}. *Fix:* {failure.fix}" if failure.fix else ""


async def _answer_about_ended(
    sweep: SweepRecord,
    lease: Lease,
    failure: ClusterUnreachableError,
    clients: SweepClients,
    respond: Respond,
) -> None:
    """Answer from what the main cluster stores of an ended sweep: its cluster can be gone forever."""
    for command in await _questions(sweep, clients):
        if command.action in NEEDS_CLUSTER:
            fix = f" *Fix:* {failure.fix}" if failure.fix else ""
            await _decline(
                command, f"Can't answer about `{sweep.id}` now: {plain(f'{failure}.{fix}')}", clients
            )
        else:
            await respond(command, sweep, Observation())
        await clients.store.remove_commands(sweep.id, [command], lease)


async def _answer_questions(sweep: SweepRecord, lease: Lease, clients: SweepClients) -> None:
    for command in await _questions(sweep, clients):
        await _decline(command, f"Can't answer about `{sweep.id}` now. {unreachable_line(sweep)}", clients)
        await clients.store.remove_commands(sweep.id, [command], lease)


async def _questions(sweep: SweepRecord, clients: SweepClients) -> list[Command]:
    return [each for each in await clients.store.commands(sweep.id) if each.action.is_read_only]


async def _decline(command: Command, text: str, clients: SweepClients) -> None:
    with suppress(NotInChannelError, MessageRejectedError):
        await clients.slack.post_ephemeral(command.user, text, command.response_url)
