"""Run Katib locally: webhooks, controllers, algorithms, collectors, and the database manager.

It shares only the object store with the rest of the local world, and responds as the recorded Katib does.
"""

from functools import partial

from local.katib import pods, webhooks
from local.katib.collector import Collectors
from local.katib.controller import Controller
from local.katib.db_manager import DbManager
from local.katib.metrics import MetricsStore
from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.store import Hook, Store
from local.kubernetes.controllers.loop import ControllerLoop


class Katib(ControllerLoop):
    """Its webhooks work from construction; its controllers from `start` to `close`.

    `builtins` are the containers it brings along, by a part of their image's name, for the kubelet to run.
    """

    def __init__(self, store: Store) -> None:
        self.away = False  # the webhooks are down: with failurePolicy Fail, requests are rejected
        self.metrics = MetricsStore()
        self.db_manager = DbManager(self.metrics)
        self.collectors = Collectors(self.metrics)
        self.builtins = {
            "tfevent-metrics-collector": self.collectors.events,
            "file-metrics-collector": self.collectors.lines,
        }
        self._controller = Controller(store, self.metrics)
        self.search = self._controller.search
        store.admission("Experiment", self._answering("defaulter.experiment", "mutate-experiment"))
        store.admission("Experiment", partial(webhooks.admit, store))
        store.admission("Pod", partial(self._ask_about_pod, store))

    def _ask_about_pod(self, store: Store, pod: Object) -> Object:
        """Return whether the webhook applies: it selects namespaces by Katib's label, and all their pods."""
        if not webhooks.is_labelled(store, pod["metadata"]["namespace"]):
            return pod
        return pods.admit(store, self._answering("mutator.pod", "mutate-pod")(pod))

    def _answering(self, hook: str, path: str) -> Hook:
        def check(obj: Object) -> Object:
            if self.away and "uid" not in obj["metadata"]:
                raise webhooks.unreachable(hook, path)
            return obj

        return check

    async def _run(self) -> None:
        await self._controller.run()
