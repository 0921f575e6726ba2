"""What a trial of a space usually uses, from the latest sweep of it."""

from contextlib import aclosing
from statistics import fmean

from bot.core.plan import SweepPlan
from bot.sweep.results.models import SweepResults
from bot.sweep.results.store import ResultsStore
from k8s.engine import TrialState

USUAL = {TrialState.SUCCEEDED, TrialState.STOPPED_EARLY}


async def usual_gpu_hours(plan: SweepPlan, kept: ResultsStore) -> float | None:
    """Return the mean of the latest sweep of the repository and space with as many GPUs; None without one.

    Only trials that succeeded or were stopped early count: one that failed can have ended at once.

    Raises ApiError, UnreachableError.
    """
    latest: SweepResults | None = None
    async with aclosing(kept.of_space(plan.space.name)) as sweeps:
        async for each in sweeps:
            same = (each.repo_url, each.gpus, each.nodes) == (plan.repo_url, plan.gpus, plan.nodes)
            if same and _known(each) and (latest is None or each.ended > latest.ended):
                latest = each
    return fmean(_known(latest)) if latest else None


def _known(results: SweepResults) -> list[float]:
    return [trial.gpu_hours for trial in results.trials if trial.gpu_hours and trial.state in USUAL]
