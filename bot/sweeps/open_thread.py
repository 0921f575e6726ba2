"""Open a sweep's thread in Slack, or give the sweep another name when an older one has its own."""

from dataclasses import replace

from bot.clients import Clients
from bot.core.ids import candidates
from bot.core.record import Phase, SweepRecord
from bot.slack.client import NotInChannelError
from bot.sweeps.durable_record import DurableRecord, Save
from bot.sweeps.lifecycle import refuse
from bot.sweeps.parent_message import Links, parent

NOT_THERE = "I'm not in that channel. Type `/invite @sweepbot` there (or the name it has here) and try again."


async def open_thread(sweep: SweepRecord, clients: Clients, record: DurableRecord, save: Save) -> SweepRecord:
    """Keep the plan, then open the thread; only after both is anything created in the cluster."""
    sweep = await record.keep(sweep)
    if sweep.phase is not Phase.OPENING:
        return sweep
    try:
        ts = await clients.slack.open_thread(sweep.requester.channel, parent(sweep, Links()))
    except NotInChannelError:
        return await save(refuse(sweep, NOT_THERE, clients.now()))
    # `kept` lags, so that the end of this turn writes the ConfigMap again: without its thread, a restored
    # record would open a second one.
    return await save(replace(sweep, thread=ts, kept=Phase.RECEIVED))


async def rename(sweep: SweepRecord, clients: Clients, save: Save) -> SweepRecord:
    """Start the same request under another name: an older sweep that Redis had forgotten has this one."""
    head = sweep.request.name or sweep.request.space
    now = clients.now()

    def again(sweep_id: str) -> SweepRecord:
        return replace(sweep, id=sweep_id, phase=Phase.RECEIVED, plan=None, outbox=(), version=0)

    ids = candidates(head, f"{sweep.request_id}/{sweep.id}")
    other, _ = await clients.store.create(again, ids, f"{sweep.request_id}/{sweep.id}")
    await clients.wake(other.id)
    return await save(sweep.to(Phase.REFUSED, now, reason=f"goes on as {other.id}"))
