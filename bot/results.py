"""MLflow: the experiment that a sweep's runs go to, made before the first of them."""

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from bot.models import SweepRecord

log = logging.getLogger(__name__)

# MLflow's client is patient: by default an unreachable server holds a thread for minutes.
PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "3", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}  # seconds, times
PAUSE = 60.0  # seconds before a server that did not answer is asked again


class Results:
    def __init__(self, tracking_uri: str, ui: str) -> None:
        self._tracking_uri = tracking_uri
        self._ui = ui
        # Its own thread: a silent server takes none from name resolution, which everything else needs.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mlflow")
        self._not_before = 0.0

    async def open(self, sweep: SweepRecord) -> str | None:
        """The address of the sweep's runs, as a browser reaches it; None while MLflow does not answer.

        A sweep does not wait for MLflow: training code makes the experiment by its name just as well.
        """
        if sweep.plan is None or monotonic() < self._not_before:
            return None
        tags = {"sweepbot.sweep": sweep.id, "sweepbot.owner": sweep.asker.user_name}
        asked = asyncio.get_running_loop().run_in_executor(
            self._thread, self._experiment, sweep.plan.results_name, tags
        )
        try:
            number = await asked
        except Exception as error:  # noqa: BLE001  MLflow's client raises whatever its transports raise
            log.warning("MLflow does not answer; sweeps go on without a link: %s", error)
            self._not_before = monotonic() + PAUSE
            return None
        # Its runs by name: without these words MLflow 3 opens on a page about language models' traces.
        return f"{self._ui}/#/experiments/{number}/runs?workflowType=machine_learning"

    def _experiment(self, name: str, tags: dict[str, str]) -> str:
        os.environ.update(PATIENCE)
        # Three seconds of imports, so not at the top: `serve` and `plan` never need it.
        from mlflow import MlflowClient  # noqa: PLC0415
        from mlflow.exceptions import MlflowException  # noqa: PLC0415

        client = MlflowClient(tracking_uri=self._tracking_uri)
        if found := client.get_experiment_by_name(name):
            return str(found.experiment_id)
        try:
            return str(client.create_experiment(name, tags=tags))
        except MlflowException:  # another worker, or the first trial, was faster
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)
