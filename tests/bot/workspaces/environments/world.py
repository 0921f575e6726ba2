"""Environments in memory: real jobs and reconciles, Kubernetes' controllers, and a node that tests direct."""

import contextlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

from bot.core.errors import RetryAfterError
from bot.core.stored_format import NewerFormatError
from bot.platform.clients import Clients
from bot.platform.config.environments import EnvironmentConfig, EnvironmentImage
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue, text
from bot.workspaces.environments.reconciler import EnvironmentReconciler
from bot.workspaces.environments.record import read
from bot.workspaces.environments.request_job import RequestJob
from bot.workspaces.environments.requests import ITEM, KEEP, EnvironmentRequest, Verb, dump
from k8s.api.errors import ApiError
from local.kubernetes.apiserver import store as kubernetes
from local.kubernetes.apiserver.kinds import timestamp
from local.kubernetes.controllers.deployments import Deployments
from local.kubernetes.controllers.jobs import Controllers
from tests.bot.factories import CONFIG, NOW, OWNER, SETTINGS
from tests.scenarios.fakes import DirectCluster, FakeMessages
from tests.scenarios.sweep_in_memory import Clock, CrashingProxy, WorkerCrash
from tests.settled import settled

NAMESPACE = "environments"
IMAGE = "registry:5000/lab/jupyter:1"
ENVIRONMENTS = EnvironmentConfig(
    namespace=NAMESPACE,
    images=(
        EnvironmentImage(name="jupyter", image=IMAGE),
        EnvironmentImage(name="code", image="registry:5000/lab/code:1", server="code-server"),
    ),
    url="https://{name}.env.example/",
)
WORKLOADS = ("StatefulSet", "Deployment")
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "rancher.io/local-path",
}


class World:
    """`crash_at`: the call to another system at which the worker dies."""

    def __init__(self, redis: Any, crash_at: int | None = None, **changes: Any) -> None:
        self.redis, self.clock, self.now = redis, Clock(crash_at), NOW
        self.kubernetes = kubernetes.Store()
        self.controllers = Controllers(self.kubernetes)
        self.deployments = Deployments(self.kubernetes)
        self.slack, self.queue = FakeMessages(), Queue(redis, prefix="env:queue")
        self.store = Store(redis)
        config = replace(CONFIG, environments=replace(ENVIRONMENTS, **changes))
        unused: Any = None
        parts: dict[str, Any] = {"cluster": DirectCluster(self.kubernetes), "slack": self.slack}
        proxies = {name: CrashingProxy(part, self.clock) for name, part in parts.items()}
        names = ("registry", "git", "capacity")
        self.clients = Clients(
            **dict.fromkeys(names, unused) | proxies,
            store=self.store,
            queue=self.queue,
            settings=SETTINGS,
            config=config,
            now=lambda: self.now,
        )

    @contextlib.asynccontextmanager
    async def started(self):
        for name in (NAMESPACE, "sweeps"):
            self.kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.kubernetes.create(CLASS)
        self.controllers.start()
        self.deployments.start()
        try:
            yield self
        finally:
            await self.deployments.close()
            await self.controllers.close()

    async def add(self, request: EnvironmentRequest) -> None:
        await self.store.add_request(str(ITEM), dump(request), queue=self.queue, ttl=KEEP)

    async def waiting(self) -> list[str]:
        return [text(each) for each in await self.store.requests(str(ITEM))]

    async def ask(self, verb: Verb, user: str = OWNER, **options: Any) -> None:
        options = {"name": "lab", "channel": "C1", "request_id": f"{verb}-{user}"} | options
        request = EnvironmentRequest(verb=verb, user=user, user_name="ada", **options)
        await self.add(request)
        await self.rounds(3)

    async def rounds(self, count: int) -> None:
        """Run what is queued, as workers do; one that dies is replaced by the next."""
        for _ in range(count):
            await self.round()

    async def round(self) -> None:
        with contextlib.suppress(WorkerCrash, RetryAfterError, ApiError, NewerFormatError):
            await RequestJob(self.clients).run("now")
        for each in self.workloads():
            with contextlib.suppress(WorkerCrash, RetryAfterError):
                name = each["metadata"]["name"].removeprefix("env-")
                await EnvironmentReconciler(self.clients).run(name)
        await self.settle()
        self.now += timedelta(seconds=2)

    def workloads(self) -> list[Any]:
        return [each for kind in WORKLOADS for each in self.kubernetes.list(kind, NAMESPACE)]

    async def settle(self) -> None:
        await settled()

    def pod(self, name: str = "lab") -> Any:
        return self.kubernetes.get("Pod", NAMESPACE, f"env-{name}-0")

    def record(self, name: str = "lab") -> Any:
        found = [each for each in self.workloads() if each["metadata"]["name"] == f"env-{name}"]
        environment = read(found[0]) if found else None
        return environment and environment.record

    async def report(self, name: str = "lab", *conditions: str, waiting: Any = None, **running: Any) -> None:
        """Set the pod's status: these conditions are True; the container waits, or runs."""
        await self.report_pod(self.pod(name), *conditions, waiting=waiting, **running)

    async def report_pod(self, pod: Any, *conditions: str, waiting: Any = None, **running: Any) -> None:
        now = timestamp(self.now)
        since = {each["type"]: each["lastTransitionTime"] for each in pod["status"].get("conditions") or ()}
        said = [
            {"type": each, "status": "True", "lastTransitionTime": since.get(each, now)}
            for each in conditions
        ]
        before = (pod["status"].get("containerStatuses") or [{}])[0].get("state", {})
        started = before.get("running", {"startedAt": now})
        state = {"waiting": waiting} if waiting else {"running": started | running}
        container = {"name": "main", "state": state, "ready": "Ready" in conditions, "restartCount": 0}
        container |= {"image": IMAGE, "imageID": ""}
        status = {"phase": "Pending" if waiting else "Running", "conditions": said}
        status |= {"containerStatuses": [container]}
        if "PodScheduled" in conditions and not pod["spec"].get("nodeName"):
            self.kubernetes.patch(*kubernetes.place(pod), {"spec": {"nodeName": "gpu-1"}})
        self.kubernetes.patch(*kubernetes.place(pod), {"status": status}, subresource="status")
        await self.rounds(2)

    async def ready(self, name: str = "lab") -> None:
        await self.report(name, "PodScheduled", "PodReadyToStartContainers", "Ready")

    async def end_pod(self, name: str = "lab") -> None:
        """Complete the deletion of the pod, as its node does."""
        if pod := self.pod(name):
            self.kubernetes.delete(*kubernetes.place(pod), grace=0)
        await self.rounds(2)

    def objects(self) -> list[tuple[str, str]]:
        kinds = (*WORKLOADS, "ReplicaSet", "Pod", "Service", "Ingress", "Secret", "PersistentVolumeClaim")
        return [(kind, each["metadata"]["name"]) for kind in kinds for each in self.kubernetes.list(kind)]
