"""Answer `/sweep curves` from TensorBoard files or MLflow: which curves, other metrics that are logged, or
why there are none (picture: `charts/curves.py`).
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from bot.core.curves import Curve
from bot.core.errors import UserError
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.space import Goal
from bot.platform.slack.mrkdwn import code
from bot.sweep.charts.curves import CurvesChart, alt_text, png
from bot.sweep.clients import SweepClients
from bot.sweep.model.observation import Observation
from bot.sweep.reports.end_results import stored_results
from bot.sweep.results.live import MAX_CURVES
from bot.sweep.results.log_curves import LogQuery, log_query
from bot.sweep.results.tracking_api import TrackingError
from bot.text.wording import counted

POINTS = 300  # of a curve that is 1,000 pixels wide
MAX_NAMES = 15  # metrics that a message names


@dataclass(frozen=True, kw_only=True)
class Picture:
    text: str
    alt: str
    png: bytes
    note: str = ""  # a sentence below the text


async def draw_curves(
    sweep: SweepRecord, seen: Observation, clients: SweepClients, metric: str = ""
) -> Picture:
    """Draw the objective, or another metric. Raise UserError without curves, or an answer of MLflow."""
    plan = sweep.plan
    if plan is None or not sweep.submitted:
        raise UserError(f"`{sweep.id}` has no trials yet.")
    space, metric = plan.space, metric or plan.space.metric
    trials = {trial.name for trial in seen.trials}
    query = log_query(plan, seen.pods, trials, clients.of(sweep.cluster).trials) if plan.has_reader else None
    where = "TensorBoard files" if query else "MLflow"
    curves, names = await (
        _of_files(sweep, query, metric, clients) if query else _of_mlflow(sweep, plan, metric, clients)
    )
    if query and not curves:  # the pods are gone, but not the runs
        with suppress(UserError):
            curves, names = await _of_mlflow(sweep, plan, metric, clients)
            where = "MLflow" if curves else where
    if not curves:
        raise UserError(_nothing(sweep.id, space.metric, metric, where, names))
    chart = CurvesChart(
        sweep=sweep.id,
        metric=metric,
        maximize=space.goal is Goal.MAXIMIZE if metric == space.metric else None,
        strategy=space.strategies.get(metric, "latest"),
        curves=curves,
        running=frozenset(seen.running),
    )
    shown = counted(len(curves), "trial")
    text = f"Learning curves of `{sweep.id}`: {shown} with {code(metric)} in {where}"
    return Picture(text=text, alt=alt_text(chart), png=await png(chart), note=also_logged(names - {metric}))


def also_logged(names: Collection[str]) -> str:
    """Return a sentence about other metrics of a training; "" without any."""
    if not names:
        return ""
    shown = [code(name, 60) for name in sorted(names)[:MAX_NAMES]]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"Also logged: {', '.join(shown)}{more}. To draw one, add {code('metric=NAME')} to `curves`."


def _nothing(sweep: str, objective: str, metric: str, where: str, names: Collection[str]) -> str:
    if metric != objective:
        known = ", ".join(code(name, 60) for name in sorted({objective, *names})[:MAX_NAMES])
        return f"No trial of `{sweep}` has the metric {code(metric)} in {where}. Available: {known}."
    call, step = ("mlflow.log_metric", "step=step") if where == "MLflow" else ("writer.add_scalar", "step")
    return (
        f"No trial of `{sweep}` has the metric {code(metric)} in {where} yet. "
        f'*Fix:* Log it while training: `{call}("{metric}", value, {step})`.'
    )


async def _of_mlflow(
    sweep: SweepRecord, plan: SweepPlan, metric: str, clients: SweepClients
) -> tuple[dict[str, Curve], frozenset[str]]:
    """Raise UserError if MLflow doesn't answer. It needs no search for the runs that are known."""
    try:
        return await clients.live.curves(plan, metric, POINTS, sweep.results_url or "")
    except TrackingError as error:
        with suppress(TrackingError):
            if runs := await _known_runs(sweep, clients):
                return await clients.live.curves_of(runs, metric, POINTS), frozenset()
        why = clients.mask(str(error))[:200]
        raise UserError(f"MLflow can't be read ({why}). Try again later.") from None


async def _known_runs(sweep: SweepRecord, clients: SweepClients) -> dict[str, str]:
    """Return an ended sweep's latest trials by the IDs of their runs."""
    results = await stored_results(sweep.id, clients) if sweep.phase.final else None
    found = sorted((str(each.ended), each.name, each.run_url) for each in results.trials) if results else []
    return {url.rpartition("/")[2]: name for _, name, url in found[-MAX_CURVES:] if url}


async def _of_files(
    sweep: SweepRecord, query: LogQuery, metric: str, clients: SweepClients
) -> tuple[dict[str, Curve], frozenset[str]]:
    """Return the curves that the reader printed, of the trials that logged last, and the names of all."""
    other = "" if metric in (query.metric, *query.more) else metric
    read = await clients.live.logged(sweep.id, query, other)
    found = {trial: each.curve(metric) for trial, each in read.items()}
    last = sorted((each for each in found.items() if each[1]), key=lambda each: each[1][-1].at, reverse=True)
    names = {query.metric, *(name for each in read.values() for name in each.names)}
    return dict(last[:MAX_CURVES]), frozenset(names)
