"""Sum the peak GPUs of a user's active sweeps, for `launch.gpus_per_person`."""

from collections.abc import Iterable

from bot.clients import Clients
from bot.config.permissions import peak_gpus
from bot.core.record import Phase, SweepRecord


async def limited_sweeps(user: str, clients: Clients) -> list[SweepRecord]:
    """Return a user's active sweeps that aren't paused; none if GPUs per person aren't limited."""
    if clients.config.launch.gpus_per_person is None:
        return []
    ids = [each.id for each in await clients.store.listed() if each.live and each.user == user]
    records = await clients.store.records(ids)
    return [one for one in records if not (one.phase.final or one.phase is Phase.PAUSED)]


def total_peak(sweeps: Iterable[SweepRecord]) -> int:
    return sum(peak_gpus(one.plan) for one in sweeps if one.plan)
