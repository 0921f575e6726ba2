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
from bot.sweep.sweeps.durable_record import Save
from bot.sweep.sweeps.notifier import Notifier
from k8s.api.errors import ClusterUnreachableError
from k8s.retry import Retry

RETRY = Retry(base=15.0)  # costs no request while the cluster is unreachable (k8s.api.remote)

NEEDS_CLUSTER = {Action.LOGS, Action.SHOW, Action.TRIALS}

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
    ended sweep that nothing waits for isn't tried again. `respond`: answers a question from an observation.
    """
    sweep = await clients.store.get(lease.item.key)
    if sweep is None:
        return RETRY.delay()
    if sweep.phase.final and not sweep.outbox and sweep.durable_phase is sweep.phase:
        fix = f" *Fix:* {failure.fix}" if failure.fix else ""
        why = f"Can't answer about `{sweep.id}` now: {plain(f'{failure}.{fix}')}"
        # From what the main cluster stores of an ended sweep: its cluster can be gone forever.
        await _answer_questions(sweep, lease, why, clients, respond)
        if not await clients.store.commands(sweep.id):
            return None
    reason = f"{failure.why}. *Fix:* {failure.fix}" if failure.fix else ""  # an admin has to know it
    if (after := unreachable(sweep, failure.seen or clients.now(), reason)) != sweep:
        sweep = await save(after)
    with suppress(ClusterUnreachableError):  # the results at a sweep's end are in the cluster
        sweep = await notifier.post_outbox(sweep)
    await notifier.update_parent(sweep)
    await _answer_questions(
        sweep, lease, f"Can't answer about `{sweep.id}` now. {unreachable_line(sweep)}", clients
    )
    return max(RETRY.delay(), notifier.pause or timedelta())


async def _answer_questions(
    sweep: SweepRecord, lease: Lease, why: str, clients: SweepClients, respond: Respond | None = None
) -> None:
    """Answer with `respond` what needs no cluster, if that is given, and all others with `why`."""
    for command in await clients.store.commands(sweep.id):
        if not command.action.is_read_only:
            continue
        if respond and command.action not in NEEDS_CLUSTER:
            await respond(command, sweep, Observation())
        else:
            with suppress(NotInChannelError, MessageRejectedError):
                await clients.slack.post_ephemeral(command.user, why, command.response_url)
        await clients.store.remove_commands(sweep.id, [command], lease)
