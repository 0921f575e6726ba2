"""Draw a sweep's learning curves for a person who asked for them."""

from dataclasses import dataclass

from bot.charts.curves import CurvesChart, alt_text, png
from bot.clients import Clients
from bot.core.errors import UserError
from bot.core.record import SweepRecord
from bot.core.space import Goal
from bot.lifecycle.observation import Observation
from bot.results.tracking_api import TrackingError
from bot.slack.mrkdwn import code
from bot.text.wording import counted

POINTS = 300  # of a curve that is 1,000 pixels wide


@dataclass(frozen=True, kw_only=True)
class Picture:
    text: str
    alt: str
    png: bytes


async def draw_curves(sweep: SweepRecord, seen: Observation, clients: Clients) -> Picture:
    """Raise UserError if MLflow has no curves, or doesn't answer."""
    plan = sweep.plan
    if plan is None or not sweep.submitted:
        raise UserError(f"`{sweep.id}` has no trials yet.")
    try:
        curves = await clients.live.curves(plan, POINTS)
    except TrackingError as error:
        raise UserError(
            f"MLflow isn't available ({clients.mask(str(error))[:200]}). Try again later."
        ) from None
    space = plan.space
    if not curves:
        raise UserError(
            f"No run of `{sweep.id}` in MLflow has the metric {code(space.metric)} yet. *Fix:* Log it while "
            f'training: `mlflow.log_metric("{space.metric}", value, step=step)`.'
        )
    chart = CurvesChart(
        sweep=sweep.id,
        metric=space.metric,
        maximize=space.goal is Goal.MAXIMIZE,
        strategy=space.strategies[space.metric],
        curves=curves,
        running=frozenset(seen.running),
    )
    trials = counted(len(curves), "trial")
    text = f"Learning curves of `{sweep.id}`: {trials} with {code(space.metric)} in MLflow"
    return Picture(text=text, alt=alt_text(chart), png=await png(chart))
