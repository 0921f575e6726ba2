"""A subset of Kubeflow's Training Operator v1.9.3: PyTorchJobs whose replicas never restart.

A port of its code, which the modules name; nothing of it is recorded. Its API exists once `install` was
called: a cluster without its CustomResourceDefinition has no PyTorchJobs. Elastic training, gang schedulers,
and its events about pods that can't start don't exist here.
"""

from functools import partial

from local.kubernetes.apiserver.kinds import TRAINING, Object
from local.kubernetes.apiserver.store import Store, place
from local.kubernetes.controllers import garbage
from local.kubernetes.controllers.loop import ControllerLoop
from local.kubernetes.node.container import Builtin
from local.training_operator import init_container, webhook
from local.training_operator.controller import Controller

__all__ = ["TrainingOperator", "install"]


def install(store: Store) -> None:
    store.install(*TRAINING)


class TrainingOperator(ControllerLoop):
    """Its webhook works from construction; its controller from `start` to `close`.

    `builtins` is the image of its init container, for the kubelet to run.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._controller = store, Controller(store)
        self.builtins: dict[str, Builtin] = {init_container.IMAGE: partial(init_container.run, store)}
        store.admission("PyTorchJob", webhook.reviewed)

    async def close(self) -> None:
        self._controller.close()
        await super().close()

    async def _run(self) -> None:
        async for _, obj in self._store.subscribe("PyTorchJob", "Pod", "Service"):
            for job in [obj] if obj["kind"] == "PyTorchJob" else self._owners(obj):
                self._controller.sync(*place(job)[1:])

    def _owners(self, obj: Object) -> list[Object]:
        return [each for each in garbage.owners(self._store, obj) if each["kind"] == "PyTorchJob"]
