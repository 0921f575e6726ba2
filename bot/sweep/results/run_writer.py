"""Complete the MLflow runs of an ended sweep in a thread, in passes of limited duration.

A pass applies `trial_runs.changes` to one trial after another. It is idempotent, so any worker can repeat it.
The first pass reads all runs, a later one those of the trials of which the results have no URL. A run is
complete once it isn't RUNNING and has the state tag. The status of a new run is written last, the tag of any
other run, too.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any

from bot.core.curves import Curve, Point
from bot.platform.slack.message import File
from bot.sweep.results import run_tags
from bot.sweep.results.experiments import IN_URL, RETRY, experiment_ids, tracking_client
from bot.sweep.results.models import SweepResults, TrialResult
from bot.sweep.results.run_search import RunSearch, Search
from bot.sweep.results.tracking_api import TrackingApi
from bot.sweep.results.trial_runs import (
    FROM_KATIB,
    SOURCE_TAG,
    RunChange,
    changes,
    kept_run,
)
from k8s.api.errors import SweepbotError

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)

PASS_TIMEOUT = 20.0  # seconds of writing; the next pass continues
# With more than 1,000 values in all, MLflow's client would write the last batch's tags before the rest of it.
MAX_PARAMS_PER_REQUEST, MAX_METRICS_PER_REQUEST = 100, 800

Logged = Mapping[str, Mapping[str, Curve]]  # curves by trial and metric


class MlflowUnavailableError(SweepbotError):
    """MLflow can't be reached, or refuses the experiment."""


@dataclass(frozen=True)
class Completion:
    """The result of one pass, and whether another pass is needed."""

    urls: Mapping[str, str]  # by trial: of the run that it completed (`trial_runs.kept_run`), for browsers
    complete: bool
    failed: bool = False  # MLflow fails at single runs, which have to wait


class RunWriter:
    def __init__(self, tracking_uri: str, ui: str, search: Search | None = None) -> None:
        self._tracking_uri, self._ui = tracking_uri, ui
        self._search = search or TrackingApi(tracking_uri).search
        # A separate thread: writing must not delay the experiment of a sweep that is about to start.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mlflow-runs")
        self._not_before = 0.0

    async def complete(
        self,
        results: SweepResults,
        tags: Mapping[str, str],
        logged: Callable[[], Coroutine[Any, Any, Logged]],
    ) -> Completion:
        """Complete the runs. Raises MlflowUnavailableError.

        Args:
            tags: of new runs; their names are separate.
            logged: returns curves for metrics that the trainings themselves didn't log to MLflow. Called once
                MLflow has answered, and only if something is missing.
        """
        if monotonic() < self._not_before:
            raise MlflowUnavailableError("the last call failed")
        loop = asyncio.get_running_loop()

        def curves() -> Logged:  # from the thread
            return asyncio.run_coroutine_threadsafe(logged(), loop).result()

        call = loop.run_in_executor(self._thread, self._complete, results, tags, curves)
        try:
            return await call
        except Exception as error:  # MLflow's client raises whatever its transports raise
            answers = await loop.run_in_executor(self._thread, self._answers)
            what = "refused" if answers else "unavailable"
            self._not_before = monotonic() + RETRY.seconds() if what == "unavailable" else 0.0
            log.warning("MLflow %s; runs of %s are completed later: %s", what, results.sweep, error)
            raise MlflowUnavailableError(str(error)) from error

    def _answers(self) -> bool:
        """Return whether MLflow answers another call: then it failed only at this sweep."""
        with suppress(Exception):
            tracking_client(self._tracking_uri).search_experiments(max_results=1)
            return True
        return False

    async def keep_files(self, run_id: str, files: Sequence[File]) -> None:
        """Store files as artifacts of a run; an error is only logged: artifacts have their own storage."""
        call = asyncio.get_running_loop().run_in_executor(self._thread, self._keep_files, run_id, files)
        try:
            await call
        except Exception as error:  # noqa: BLE001 - whatever the storage's client raises
            log.warning("MLflow doesn't take the pictures of run %s: %s", run_id, error)

    def _keep_files(self, run_id: str, files: Sequence[File]) -> None:
        client = tracking_client(self._tracking_uri)
        with TemporaryDirectory() as folder:
            for file in files:
                content = file.content if isinstance(file.content, bytes) else file.content.encode()
                (Path(folder) / file.name).write_bytes(content)
            client.log_artifacts(run_id, folder, "pictures")

    def _complete(
        self, results: SweepResults, tags: Mapping[str, str], curves: Callable[[], Logged]
    ) -> Completion:
        client, name = tracking_client(self._tracking_uri), results.mlflow_experiment
        own = {run_tags.SWEEP: results.sweep}
        numbers = experiment_ids(client, name, own, results.mlflow_url)
        search = RunSearch(self._search, numbers, results)
        left = [trial for trial in results.trials if not trial.run_url]
        if len(left) == len(results.trials):
            search.read()
        logged: Logged | None = None
        done, failed = dict[str, str](), False
        until = monotonic() + PASS_TIMEOUT  # from here: reading a busy server can take longer than that
        for trial in left:
            if monotonic() > until:
                return Completion(done, complete=False, failed=failed)
            runs = search.of(trial)
            kept = kept_run(results, runs)
            number, run_id = (kept.experiment, kept.id) if kept else (numbers[0], "")
            is_taken = True
            for change in changes(replace(results, trials=(trial,)), runs):
                if logged is None:
                    logged, until = curves(), monotonic() + PASS_TIMEOUT
                run_id = run_id or _create(client, number, trial, tags)
                is_taken &= self._apply(client, change.run_id or run_id, change, logged)
            failed |= not is_taken
            if run_id and is_taken:
                done[trial.name] = f"{self._ui}{IN_URL}{number}/runs/{run_id}"
        return Completion(done, complete=True, failed=failed)

    def _apply(self, client: "MlflowClient", run_id: str, change: RunChange, logged: Logged) -> bool:
        """Return False if only this run has to be tried again; raise if MLflow is unavailable for all."""
        from mlflow.exceptions import MlflowException  # noqa: PLC0415  see tracking_client

        try:
            _write(client, run_id, change, logged.get(change.trial.name, {}))
        except MlflowException as error:
            if not self._answers():
                raise
            log.warning("MLflow rejected the run of %s: %s", change.trial.name, error)
            return bool(error.error_code == "INVALID_PARAMETER_VALUE")  # it never takes it
        return True


def _create(client: "MlflowClient", number: str, trial: TrialResult, tags: Mapping[str, str]) -> str:
    """Create the run of a trial that has none, and return its ID."""
    own = {**tags, run_tags.RUN_NAME: trial.name, run_tags.TRIAL: trial.name, SOURCE_TAG: FROM_KATIB}
    started = _milliseconds(trial.started or trial.ended)  # MLflow would take the current time
    return str(client.create_run(number, started, own, run_name=trial.name).info.run_id)


def _write(client: "MlflowClient", run_id: str, change: RunChange, curves: Mapping[str, Curve]) -> None:
    from mlflow.entities import Metric, Param, RunTag  # noqa: PLC0415  see tracking_client

    if change.delete:
        client.delete_run(run_id)
        return
    trial = change.trial
    if change.run_id and change.status:
        client.set_terminated(run_id, change.status, _milliseconds(trial.ended))
    params = [Param(name, value) for name, value in change.params.items()]
    while len(params) > MAX_PARAMS_PER_REQUEST:
        client.log_batch(run_id, params=params[:MAX_PARAMS_PER_REQUEST])
        del params[:MAX_PARAMS_PER_REQUEST]
    at = _milliseconds(trial.ended) or _milliseconds(trial.started) or 0
    metrics = [
        Metric(name, point.value, round(point.at * 1000), point.step)
        for name, value in change.metrics.items()
        for point in curves.get(name) or (Point(0, value, at / 1000),)
    ]
    while len(metrics) > MAX_METRICS_PER_REQUEST:
        client.log_batch(run_id, metrics=metrics[:MAX_METRICS_PER_REQUEST])
        del metrics[:MAX_METRICS_PER_REQUEST]
    tags_ = [RunTag(name, value) for name, value in change.tags.items()]
    if metrics or params or tags_:
        client.log_batch(run_id, metrics=metrics, params=params, tags=tags_)
    if not change.run_id:
        client.set_terminated(run_id, change.status, _milliseconds(trial.ended))


def _milliseconds(at: datetime | None) -> int | None:
    return round(at.timestamp() * 1000) if at else None
