"""A subset of Kubeflow Trainer v2.3.0 with JobSet v0.12.0: TrainJobs of a torch runtime of their namespace.

A port of its code, which the modules name; nothing of it is recorded. Its API exists once `install` was
called: a cluster without its CustomResourceDefinitions has no TrainJobs. Cluster-wide runtimes, initializers,
runtime patches, gang schedulers, MPI, and torchtune don't exist here.
"""

from collections.abc import Iterator

from local import jobset
from local.kubernetes.apiserver.kinds import TRAINER, Object
from local.kubernetes.apiserver.store import Store, place
from local.kubernetes.controllers import garbage
from local.kubernetes.controllers.loop import ControllerLoop
from local.trainer import webhooks
from local.trainer.controller import Controller

__all__ = ["Trainer", "install"]

KINDS = ("TrainJob", "JobSet", "Job", "Pod", "Service")


def install(store: Store) -> None:
    store.install(*TRAINER)


class Trainer(ControllerLoop):
    """The webhooks work from construction; the controllers from `start` to `close`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._controllers: dict[str, Controller | jobset.Controller] = {
            "TrainJob": Controller(store),
            "JobSet": jobset.Controller(store),
        }
        store.admission("TrainJob", lambda job: webhooks.reviewed_job(store, job))
        store.admission("TrainingRuntime", webhooks.reviewed_runtime)
        store.admission("JobSet", jobset.reviewed)

    async def close(self) -> None:
        for controller in self._controllers.values():
            controller.close()
        await super().close()

    async def _run(self) -> None:
        async for _, obj in self._store.subscribe(*KINDS):
            for each in self._above(obj):
                self._controllers[each["kind"]].sync(*place(each)[1:])

    def _above(self, obj: Object) -> Iterator[Object]:
        """Return the object, if it has a controller, and what owns it, from below; pods change two above."""
        if obj["kind"] in self._controllers:
            yield obj
        for owner in garbage.owners(self._store, obj):
            if owner["kind"] in ("TrainJob", "JobSet", "Job"):
                yield from self._above(owner)
