"""Read the other sweeps that count for the GPU limits of a sweep's owner.

Two workers can check two sweeps of one person or team at once, and neither sees what the other one is about
to save. So the group's last check is read before the other sweeps are, and the save is rejected if there was
another one since. Nothing is locked: a worker that dies between the two holds up no other sweep.
"""

from bot.core.record import LimitCheck, SweepRecord
from bot.platform.config.permissions import OtherPeaks
from bot.sweep.clients import SweepClients
from bot.sweep.launch.user_limits import limit_group, limited_sweeps, other_peaks
from bot.sweep.sweeps.transient_errors import PLAN_TIMEOUT


async def observe_others(
    sweep: SweepRecord, clients: SweepClients
) -> tuple[OtherPeaks, tuple[LimitCheck, ...]]:
    """Return the peaks of the other sweeps that count, and the check to save with; none without a limit."""
    others, checks = await _others(sweep, clients)
    return other_peaks(sweep.requester.user, others), checks


async def observe_older(
    sweep: SweepRecord, clients: SweepClients
) -> tuple[OtherPeaks, tuple[LimitCheck, ...]] | None:
    """Return the same for a new sweep; None while an older one isn't planned yet: that one comes first."""
    others, checks = await _others(sweep, clients)
    first = (one for one in others if (one.created, one.id) < (sweep.created, sweep.id))
    if any(one.plan is None and clients.now() - one.created < 2 * PLAN_TIMEOUT for one in first):
        return None
    return other_peaks(sweep.requester.user, others), checks


async def _others(
    sweep: SweepRecord, clients: SweepClients
) -> tuple[list[SweepRecord], tuple[LimitCheck, ...]]:
    user = sweep.requester.user
    group, _ = limit_group(user, clients.config)
    if not group:
        return [], ()
    check = await clients.store.limit_check(group)
    return [one for one in await limited_sweeps(user, clients) if one.id != sweep.id], (check,)
