"""A sweep in memory whose trials wait in queues of the local world's Kueue."""

from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from bot.core.commands import Action, Command
from bot.core.work_item import QUEUE
from bot.platform.config.queues import Priority, Queue, QueuePolicy
from bot.sweep.answers import queue_job
from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL
from local import kueue
from local.kubernetes.controllers.jobs import Controllers
from tests.bot.factories import ADMIN, NOW, OWNER
from tests.scenarios.sweep_in_memory import SPACE, SWEEP, Clock, SimulatedSweep

GPU = "nvidia.com/gpu"
POLICY = QueuePolicy(
    queues=(Queue(name="research"), Queue(name="urgent", people=(ADMIN,))),
    priorities=(
        Priority(name="low", class_="sweeps-low"),
        Priority(name="normal", class_="sweeps-normal"),
        Priority(name="high", class_="sweeps-high"),
    ),
)
CLASSES = {"sweeps-low": 10, "sweeps-normal": 100, "sweeps-high": 1000}


def create_queues(store, gpus, namespace="sweeps"):
    """Create two LocalQueues of one ClusterQueue with this quota, and the priority classes."""
    resources = [{"name": GPU, "nominalQuota": str(gpus)}]
    group = {"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": resources}]}
    preemption = {"withinClusterQueue": "LowerPriority"}
    _create(store, "ClusterQueue", {"name": "lab"}, {"resourceGroups": [group], "preemption": preemption})
    for name in ("research", "urgent"):
        _create(store, "LocalQueue", {"name": name, "namespace": namespace}, {"clusterQueue": "lab"})
    for name, value in CLASSES.items():
        _create(store, "WorkloadPriorityClass", {"name": name}, {}, value=value)


def _create(store, kind, meta, spec, **more):
    head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": meta}
    store.create({**head, "spec": spec, **more})


class QueuedSweep(SimulatedSweep):
    """`gpus`: the quota of the only ClusterQueue."""

    def __init__(self, redis, *, gpus=2, **scenario):
        super().__init__(
            redis, Clock(None), **{"image": True, "endless": "trainings", "space": SPACE} | scenario
        )
        self.clients = replace(self.clients, config=replace(self.clients.config, **vars(POLICY)))
        self.kueue = kueue.Kueue(self.kubernetes)
        self.controllers = Controllers(self.kubernetes, backoff=0)
        self.gpus = gpus

    @asynccontextmanager
    async def started(self):
        kueue.install(self.kubernetes)
        self.kueue.start()
        try:
            async with super().started():
                create_queues(self.kubernetes, self.gpus)
                yield self
        finally:
            await self.kueue.close()

    def job(self, name, gpus=1, priority="sweeps-high", queue="research"):
        """A Job of another person in the same ClusterQueue."""
        main = {"name": "main", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [main]}}
        labels = {QUEUE_LABEL: queue, PRIORITY_LABEL: priority}
        meta = {"name": name, "namespace": "sweeps", "labels": labels}
        spec = {"template": template}
        self.kubernetes.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})

    def jobs(self, *, suspended=None):
        found = [j for j in self.kubernetes.list("Job") if j["metadata"]["name"].startswith(SWEEP)]
        return [j for j in found if suspended in (None, j["spec"]["suspend"])]

    async def rounds(self, number):
        for _ in range(number):
            await self.round()

    async def until(self, *phases, rounds=40):
        for _ in range(rounds):
            await self.round()
            if (await self.record()).phase in phases:
                return self.last
        raise AssertionError(f"{self.last.phase}: {self.slack.posted}")

    async def asks(self, action, user=OWNER, queue=""):
        command = Command(action=action, user=user, user_name="ada", queue=queue)
        await self.store.add_command(SWEEP, command)
        await self.rounds(3)
        return await self.record()

    def later(self, **time):
        self.clients = replace(self.clients, now=lambda: NOW + timedelta(**time))

    def said(self, words):
        return [text for text in self.slack.posted if words in text]

    async def queue_text(self):
        ask = Command(action=Action.QUEUE, user=OWNER, user_name="ada", response_url="https://hooks/2")
        await self.store.add_command(str(QUEUE), ask)
        await queue_job.answer_commands("now", self.clients)
        return self.slack.ephemeral_messages[-1][1]
