"""Complete the MLflow runs of an ended sweep in a thread, in passes of limited duration.

A pass reads all runs and applies `trial_runs.changes`. It is idempotent, so any worker can repeat it. A run
is complete once it isn't RUNNING and has the state tag. The status of a new run is written last, the tag of
any other run, too.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any

from bot.core.curves import Curve, Point
from bot.platform.slack.message import File
from bot.sweep.results import run_tags
from bot.sweep.results.experiments import RETRY, experiment_id, tracking_client
from bot.sweep.results.models import SweepResults
from bot.sweep.results.run_search import RunSearch, Search
from bot.sweep.results.tracking_api import TrackingApi
from bot.sweep.results.trial_runs import FROM_KATIB, SOURCE_TAG, Run, RunChange, changes, main_run
from k8s.api.errors import SweepbotError

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)

PASS_TIMEOUT = 20.0  # seconds of writing; the next pass continues
# With more than 1,000 values in all, MLflow's client would write the last batch's tags before the rest of it.
MAX_PARAMS_PER_REQUEST, MAX_METRICS_PER_REQUEST = 100, 800

Logged = Mapping[str, Mapping[str, Curve]]  # curves by trial and metric


class MlflowUnavailableError(SweepbotError):
    """MLflow can't be reached, or rejects every call."""


@dataclass(frozen=True)
class MainRun:
    """A trial's main run (`trial_runs.main_run`)."""

    id: str
    url: str  # for browsers


@dataclass(frozen=True)
class Completion:
    """The result of one pass: the runs by trial, and whether another pass is needed."""

    runs: Mapping[str, MainRun]
    complete: bool


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
            self._not_before = monotonic() + RETRY.seconds()
            log.warning("MLflow unavailable; runs of %s are completed later: %s", results.sweep, error)
            raise MlflowUnavailableError(str(error)) from error

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
        client = tracking_client(self._tracking_uri)
        number = experiment_id(client, results.mlflow_experiment, {run_tags.SWEEP: results.sweep})
        runs = list(RunSearch(self._search, number, results).runs())
        todo = changes(results, runs)
        logged = curves() if todo else {}
        until = monotonic() + PASS_TIMEOUT  # from here: reading a busy server can take longer than that
        for change in todo:
            if monotonic() > until:
                return Completion(self._main_runs(number, results, runs), complete=False)
            self._apply(client, number, change, tags, logged)
        runs = list(RunSearch(self._search, number, results).runs()) if todo else runs
        return Completion(self._main_runs(number, results, runs), complete=True)

    def _apply(
        self, client: "MlflowClient", number: str, change: RunChange, tags: Mapping[str, str], logged: Logged
    ) -> None:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415  see tracking_client

        try:
            _write(client, number, change, tags, logged.get(change.trial.name, {}))
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            log.warning("MLflow rejected the run of %s: %s", change.trial.name, error)

    def _main_runs(self, number: str, results: SweepResults, runs: list[Run]) -> dict[str, MainRun]:
        by_trial: dict[str, list[Run]] = {}
        for run in runs:
            by_trial.setdefault(run.trial, []).append(run)
        main = {trial: main_run(each, results.space.metric) for trial, each in by_trial.items()}
        url = f"{self._ui}/#/experiments/{number}/runs"
        return {trial: MainRun(run.id, f"{url}/{run.id}") for trial, run in main.items() if run and run.id}


def _write(
    client: "MlflowClient",
    number: str,
    change: RunChange,
    tags: Mapping[str, str],
    curves: Mapping[str, Curve],
) -> None:
    from mlflow.entities import Metric, Param, RunTag  # noqa: PLC0415  see tracking_client

    if change.delete:
        client.delete_run(change.run_id)
        return
    trial, run_id = change.trial, change.run_id
    if not run_id:
        own = {**tags, run_tags.RUN_NAME: trial.name, run_tags.TRIAL: trial.name, SOURCE_TAG: FROM_KATIB}
        started = _milliseconds(trial.started or trial.ended)  # MLflow would take the current time
        run_id = client.create_run(number, started, own, run_name=trial.name).info.run_id
    elif change.status:
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
