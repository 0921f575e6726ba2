"""Complete the MLflow runs of ended sweeps, in separate work items so that no sweep waits for MLflow.

The results then get the runs' URLs and the learning curves of the best trials. `runs_pending` of the stored
results says whether a work item is still needed: it is queued again after a loss of Redis.
"""

import asyncio
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from bot.clients import Clients
from bot.core.curves import Curve, Point
from bot.reports.end_results import stored_results
from bot.results import run_tags
from bot.results.models import SweepResults, TrialResult
from bot.results.ranking import ranked
from bot.results.run_writer import MainRun, MlflowUnavailableError, RunWriter
from bot.results.tracking_api import TrackingError
from k8s.objects import TEAM_LABEL

log = logging.getLogger(__name__)

NEXT_PASS_DELAY = timedelta(seconds=1)  # another pass is needed
BUSY_DELAY = timedelta(seconds=5)  # this worker is writing another sweep's runs
UNAVAILABLE_DELAY = timedelta(minutes=5)
MAX_AGE = timedelta(days=7)  # since the sweep ended; older runs stay as they are
CURVES_STORED, CURVE_POINTS = 6, 200  # per sweep, about 10 KB; the chart has six colors


class TrialRunsJob:
    def __init__(self, clients: Clients, writer: RunWriter) -> None:
        self._clients, self._writer = clients, writer
        self._writing = asyncio.Lock()

    async def run(self, sweep_id: str) -> timedelta | None:
        """Complete the runs, then store their URLs and curves in the results, and wake the sweep.

        Return when to run again; None when nothing is left to do. Raises ApiError and UnreachableError.
        """
        results = await stored_results(sweep_id, self._clients)
        if results is None:
            return None
        if self._clients.now() - results.ended > MAX_AGE:
            return await self._store(results, replace(results, runs_pending=False))
        if self._writing.locked():
            return BUSY_DELAY
        async with self._writing:
            try:
                done = await self._writer.complete(results, await self._tags(results))
            except MlflowUnavailableError:
                return UNAVAILABLE_DELAY
        new = replace(
            results,
            trials=tuple(_with_url(each, done.runs.get(each.name)) for each in results.trials),
            curves=await self._curves(results, done.runs),
            runs_pending=not done.complete,
        )
        again = await self._store(results, new)
        return again if done.complete else NEXT_PASS_DELAY

    async def _store(self, old: SweepResults, new: SweepResults) -> timedelta | None:
        """Store changed results unless the sweep was extended and ended again; then run again."""
        if new == old:
            return None
        if await stored_results(old.sweep, self._clients) != old:
            return NEXT_PASS_DELAY
        await self._clients.kept_results.save(new)
        await self._clients.wake(old.sweep)
        return None

    async def _curves(self, results: SweepResults, runs: Mapping[str, MainRun]) -> dict[str, Curve]:
        """Return the curves of the best trials, without values that aren't finite; {} for seeds."""
        space, finite = results.space, [each for each in results.trials if each.value is not None]
        best = [] if space.seed else ranked(space.goal, finite, results.best)[:CURVES_STORED]
        trials = {runs[each.name].id: each.name for each in best if each.name in runs}
        if not trials:
            return {}
        try:
            curves = await self._clients.live.curves_of(trials, space.metric, CURVE_POINTS)
        except TrackingError as error:
            log.warning("no learning curves of %s: %s", results.sweep, error)
            return results.curves
        return {trial: _finite(curve) for trial, curve in curves.items()}

    async def _tags(self, results: SweepResults) -> dict[str, str]:
        """Return the tags of the trials' own runs; team and thread only while the record exists."""
        record = await self._clients.store.get(results.sweep)
        plan = record.plan if record else None
        tags = run_tags.planned(
            sweep=results.sweep,
            owner=results.owner_name,
            owner_id=results.owner,
            team=plan.experiment["metadata"]["labels"].get(TEAM_LABEL, "") if plan else "",
            repository=results.repo_url,
            branch=results.branch,
            commit=results.commit,
        )
        link = record.permalink if record else ""
        return {**tags, **run_tags.submitted(results.sweep, results.image, link)}


def _with_url(trial: TrialResult, run: MainRun | None) -> TrialResult:
    return replace(trial, run_url=run.url) if run else trial


def _finite(curve: Curve) -> Curve:
    """Return the finite points. NaN differs from itself, and so would results that have one."""
    return tuple(Point(point.step, point.value) for point in curve if math.isfinite(point.value))
