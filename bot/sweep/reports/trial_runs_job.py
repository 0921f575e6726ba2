"""Complete the MLflow runs of ended sweeps, in separate work items so that no sweep waits for MLflow.

The results then get the runs' URLs and the learning curves of the best trials. `runs_pending` of the stored
results says whether a work item is still needed: it is queued again after a loss of Redis.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial

from bot.core.curves import Curve
from bot.core.record import SweepRecord
from bot.sweep.clients import SweepClients
from bot.sweep.reports.end_results import (
    best_pictures,
    best_trials,
    finite_curve,
    logged_curves,
    stored_results,
)
from bot.sweep.results import run_tags
from bot.sweep.results.models import SweepResults
from bot.sweep.results.run_writer import Logged, MlflowUnavailableError, RunWriter
from bot.sweep.results.tracking_api import TrackingError
from k8s.objects import TEAM_LABEL
from k8s.retry import Retry

log = logging.getLogger(__name__)

BUSY_DELAY = timedelta(seconds=5)  # this worker is writing another sweep's runs
NEXT_PASS_DELAY = timedelta(seconds=6)  # another pass is needed; longer, so that the others come first
RETRY = Retry(base=300.0)  # while MLflow is unavailable, or fails at a run
MAX_AGE = timedelta(days=7)  # since the sweep ended; older runs stay as they are
CURVE_POINTS = 200  # of each curve: about 10 KB per sweep


class TrialRunsJob:
    def __init__(self, clients: SweepClients, writer: RunWriter) -> None:
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
                record = await self._clients.store.get(sweep_id)
                tags, logged = self._tags(results, record), partial(self._logged, results, record)
                done = await self._writer.complete(results, tags, logged)
            except MlflowUnavailableError:
                return RETRY.delay()
        trials = tuple(
            replace(each, run_url=done.urls.get(each.name, each.run_url)) for each in results.trials
        )
        runs = {each.name: each.run_url.rpartition("/")[2] for each in trials if each.run_url}
        if record and results.best in done.urls:
            pictures = await best_pictures(record, results, self._clients)
            if pictures:
                await self._writer.keep_files(runs[results.best], pictures)
        curves = await self._curves(results, runs) if done.complete else results.curves
        pending = not done.complete or done.failed
        again = await self._store(
            results, replace(results, trials=trials, curves=curves, runs_pending=pending)
        )
        if done.failed:
            return again or RETRY.delay()
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

    async def _curves(self, results: SweepResults, runs: Mapping[str, str]) -> dict[str, Curve]:
        """Return the curves of the best trials, without values that aren't finite. `runs`: IDs by trial."""
        best = best_trials(results)
        trials = {runs[each.name]: each.name for each in best if each.name in runs}
        if not trials:
            return results.curves
        try:
            curves = await self._clients.live.curves_of(trials, results.space.metric, CURVE_POINTS)
        except TrackingError as error:
            log.warning("no learning curves of %s: %s", results.sweep, error)
            return results.curves
        # MLflow can lack what was stored of TensorBoard's files at the end: points that it rejected.
        return {trial: finite_curve(curve) for trial, curve in curves.items()} | {
            trial: curve for trial, curve in results.curves.items() if len(curve) > len(curves.get(trial, ()))
        }

    async def _logged(self, results: SweepResults, record: SweepRecord | None) -> Logged:
        """Return the curves in the trials' TensorBoard files, while the record exists."""
        if record is None or record.plan is None or record.request_id != results.request_id:
            return {}
        found = await logged_curves(
            record, record.plan, [trial.name for trial in results.trials], self._clients
        )
        return {trial: {name: each.curve(name) for name in each.samples} for trial, each in found.items()}

    def _tags(self, results: SweepResults, record: SweepRecord | None) -> dict[str, str]:
        """Return the tags of the trials' own runs; team and thread only while the record exists."""
        plan = record.plan if record else None
        tags = run_tags.planned(
            sweep=results.sweep,
            owner=results.owner_name,
            owner_id=results.owner,
            team=plan.experiment["metadata"]["labels"].get(TEAM_LABEL, "") if plan else "",
            repository=results.repo_url,
            branch=results.branch,
            commit="" if results.space.pairs else results.commit,
        )
        link = record.permalink if record else ""
        return {**tags, **run_tags.submitted(results.sweep, results.image, link)}
