"""Complete the MLflow runs of ended sweeps, in separate work items so that no sweep waits for MLflow."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from bot.clients import Clients
from bot.reports.end_results import stored_results
from bot.results import run_tags
from bot.results.models import SweepResults
from bot.results.run_writer import MlflowUnavailableError, RunWriter
from k8s.objects import TEAM_LABEL

NEXT_PASS_DELAY = timedelta(seconds=1)  # another pass is needed
BUSY_DELAY = timedelta(seconds=5)  # this worker is writing another sweep's runs
UNAVAILABLE_DELAY = timedelta(minutes=5)
MAX_AGE = timedelta(days=7)  # since the sweep ended; older runs stay as they are


class TrialRunsJob:
    def __init__(self, clients: Clients, writer: RunWriter) -> None:
        self._clients, self._writer = clients, writer
        self._writing = asyncio.Lock()

    async def run(self, sweep_id: str) -> timedelta | None:
        """Complete the runs, then store their URLs in the results.

        Return when to run again; None when nothing is left to do. Raises ApiError and UnreachableError.
        """
        results = await stored_results(sweep_id, self._clients)
        if results is None or self._clients.now() - results.ended > MAX_AGE:
            return None
        if self._writing.locked():
            return BUSY_DELAY
        async with self._writing:
            try:
                urls = await self._writer.complete(results, await self._tags(results))
            except MlflowUnavailableError:
                return UNAVAILABLE_DELAY
        if urls is None:
            return NEXT_PASS_DELAY
        trials = tuple(replace(each, run_url=urls.get(each.name, each.run_url)) for each in results.trials)
        if trials == results.trials:
            return None
        if await stored_results(sweep_id, self._clients) != results:  # an extended sweep ended again
            return NEXT_PASS_DELAY
        await self._clients.kept_results.save(replace(results, trials=trials))
        return None

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
