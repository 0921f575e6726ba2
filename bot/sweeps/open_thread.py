"""Open a sweep's thread in Slack, or rename the sweep if an older one has its name."""

from dataclasses import replace

from bot.clients import Clients
from bot.core.ids import candidates
from bot.core.record import Phase, SweepRecord
from bot.lifecycle.observation import Observation
from bot.lifecycle.phases import advance, refuse
from bot.messages.parent import Links, parent
from bot.slack.client import NotInChannelError
from bot.sweeps.durable_record import DurableRecord, Save

NOT_IN_CHANNEL = (
    "Sweepbot isn't in that channel. Run `/invite @sweepbot` there (the app's name can differ), then try "
    "again."
)


async def open_thread(sweep: SweepRecord, clients: Clients, record: DurableRecord, save: Save) -> SweepRecord:
    """Write the plan to the ConfigMap, then open the thread; the cluster is changed only after both."""
    sweep = await record.keep(sweep)
    if sweep.phase is not Phase.OPENING:
        return sweep
    message = parent(sweep, Links())
    try:
        ts = await clients.slack.open_thread(sweep.requester.channel, message)
    except NotInChannelError:
        return await save(refuse(sweep, NOT_IN_CHANNEL, clients.now()))
    # The older phase makes this reconcile write the ConfigMap again at its end: a restored record without its
    # thread would open a second one.
    sweep = replace(sweep, shown=message.fingerprint, shown_at=clients.now(), shown_phase=sweep.phase)
    sweep = await save(replace(sweep, thread=ts, durable_phase=Phase.RECEIVED))
    sweep = replace(sweep, permalink=await clients.slack.permalink(sweep.requester.channel, ts))
    # The next phase at once: one write of the ConfigMap has the thread and the phase.
    return await save(advance(sweep, Observation(), clients.config, clients.now()))


async def rename(sweep: SweepRecord, clients: Clients, save: Save) -> SweepRecord:
    """Start the same request under another name: a sweep that Redis lost has this one."""
    head = sweep.request.name or sweep.request.space
    now = clients.now()

    def renamed(sweep_id: str) -> SweepRecord:
        return replace(sweep, id=sweep_id, phase=Phase.RECEIVED, plan=None, outbox=(), version=0)

    ids = candidates(head, f"{sweep.request_id}/{sweep.id}")
    other, _ = await clients.store.create(renamed, ids, f"{sweep.request_id}/{sweep.id}")
    await clients.wake(other.id)
    return await save(sweep.to(Phase.REFUSED, now, reason=f"renamed to {other.id}"))
