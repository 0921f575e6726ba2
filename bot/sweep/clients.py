"""The clients of sweeps, beside those of every worker: runs, live values, pictures, and measured use."""

from dataclasses import dataclass
from typing import Self

from bot.core.plan import HOME_CLUSTER
from bot.measure.gpus.hourly_store import HourlyStore
from bot.platform.clients import Clients
from bot.sweep.charts.drawing import Pictures
from bot.sweep.results.experiments import MlflowExperiments
from bot.sweep.results.live import LiveValues
from bot.sweep.results.store import ResultsStore


@dataclass(kw_only=True)
class SweepClients(Clients):
    results: MlflowExperiments
    live: LiveValues
    pictures: Pictures
    usage: HourlyStore

    def of(self, cluster: str) -> Self:
        """Return these clients for sweeps whose trials run in this cluster."""
        found = super().of(cluster)
        if found is not self:
            found.usage = self.usage.at(cluster)
        return found

    @property
    def home(self) -> Self:
        return self.of(HOME_CLUSTER)

    @property
    def kept_results(self) -> ResultsStore:
        """The results of ended sweeps."""
        return ResultsStore(self.cluster, self.settings.k8s_namespace)
