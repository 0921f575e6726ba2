"""Combine the results of rerun seeds with those of the sweep that they were missing in. Pure.

Only results of the same commit, image, command, and metric are combined.
"""

from dataclasses import replace

from bot.core.record import SweepRecord
from bot.core.request import Notify, SweepRequest
from bot.core.seeds import EarlierSeeds


def earlier_seeds(sweep: SweepRecord, request: SweepRequest) -> EarlierSeeds | None:
    """Return the results that a rerun with `request` can be combined with; None if there are none."""
    values = combined_values(sweep)
    if request.seeds is None or sweep.plan is None or not values:
        return None
    if _measured(request) != _measured(sweep.request):
        return None
    plan = sweep.plan
    return EarlierSeeds(sweep=sweep.id, commit=plan.commit, image=plan.image_by_digest, values=values)


def combined_values(sweep: SweepRecord) -> dict[str, float]:
    """Return the results by seed, with the earlier ones if both sweeps ran the same code."""
    own = {seed: value for seed, value in sweep.progress.seeds.items() if value is not None}
    earlier = sweep.earlier_seeds
    return earlier.values | own if earlier and ran_the_same(sweep, earlier) else own


def ran_the_same(sweep: SweepRecord, earlier: EarlierSeeds) -> bool:
    """Return whether the branch and the image still were what the earlier sweep had run."""
    plan = sweep.plan
    return plan is not None and (plan.commit, plan.image_by_digest) == (earlier.commit, earlier.image)


def _measured(request: SweepRequest) -> SweepRequest:
    """Return the request without what doesn't change a result."""
    return replace(
        request,
        seeds=None,
        commit=None,
        name=None,
        parallel=None,
        auto=False,
        gate=None,
        max_hours=None,
        budget=None,
        cluster=None,
        queue=None,
        priority=None,
        promotes=None,
        notify=Notify.CHANNEL,
    )
