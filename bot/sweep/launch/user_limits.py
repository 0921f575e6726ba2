"""Sum the peak GPUs of active sweeps, for the limits of one person and of one team."""

from collections.abc import Iterable

from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.platform.clients import Clients
from bot.platform.config.permissions import OtherPeaks, peak_gpus, person_limit
from bot.platform.config.policy import Config
from bot.platform.config.teams import granted_team


async def limited_sweeps(user: str, clients: Clients) -> list[SweepRecord]:
    """Return the active sweeps that count for a limit and aren't paused: the user's, or the whole team's."""
    _, users = limit_group(user, clients.config)
    if not users:
        return []
    ids = [each.id for each in await clients.store.listed() if each.live and each.user in users]
    records = await clients.store.records(ids)
    return [one for one in records if not (one.phase.final or one.phase is Phase.PAUSED)]


def limit_group(user: str, config: Config) -> tuple[str, set[str]]:
    """Return the team or person whose sweeps are counted with the user's, and their users; none: no limit."""
    team = granted_team(config.teams, user, config.self_assigned)
    if team and team.gpus_total is not None:
        return f"team:{team.name}", {user, *team.users}
    return ("", set()) if person_limit(user, config) is None else (f"person:{user}", {user})


def other_peaks(user: str, sweeps: Iterable[SweepRecord]) -> OtherPeaks:
    """Return the sums of these sweeps: the user's own, and all of them."""
    peaks = [(one.requester.user, _counted_gpus(one, one.plan)) for one in sweeps if one.plan]
    return OtherPeaks(person=sum(p for who, p in peaks if who == user), team=sum(p for _, p in peaks))


def _counted_gpus(sweep: SweepRecord, plan: SweepPlan) -> int:
    """Return the GPUs of the trials that run or wait, or that can start next if that is more.

    A `parallel=auto` sweep that has been lowered still holds the GPUs of its running trials.
    """
    if not plan.space.auto:
        return peak_gpus(plan)
    progress = sweep.progress
    return plan.trial_gpus * max(sweep.parallel_now, progress.running + progress.waiting + progress.finishing)
