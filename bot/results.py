"""MLflow: the experiment that a sweep's runs go to, made before the first of them."""

import asyncio
import logging

from bot.models import SweepRecord

log = logging.getLogger(__name__)


class Results:
    def __init__(self, tracking_uri: str, ui: str) -> None:
        self._tracking_uri = tracking_uri
        self._ui = ui

    async def open(self, sweep: SweepRecord) -> str | None:
        """The address of the sweep's runs, as a browser reaches it; None while MLflow does not answer.

        A sweep does not wait for MLflow: training code makes the experiment by its name just as well.
        """
        if sweep.plan is None:
            return None
        tags = {"sweepbot.sweep": sweep.id, "sweepbot.owner": sweep.asker.user_name}
        try:
            number = await asyncio.to_thread(self._experiment, sweep.plan.results_name, tags)
        except Exception:  # MLflow's client raises whatever its many transports raise
            log.warning("MLflow does not answer; %s goes on without a link", sweep.id, exc_info=True)
            return None
        return f"{self._ui}/#/experiments/{number}"

    def _experiment(self, name: str, tags: dict[str, str]) -> str:
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
