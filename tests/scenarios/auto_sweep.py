"""A sweep in memory with `parallel=auto`, on a node with a few GPUs that others want, too."""

from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from bot.core.commands import Command
from bot.measure.capacity.measure import CapacityMeasurer
from bot.platform.storage.free_capacity import CapacityStore
from k8s.nodes.gpu_pods import read_gpu_pod
from k8s.trial_kinds import TRIAL_LABEL
from local.kubernetes.apiserver import store as kubernetes
from tests.bot.factories import NOW, OWNER, REQUEST
from tests.bot.measure.capacity.test_nodes import listing
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

GPU = "nvidia.com/gpu"
SPACE = """
command: python train.py
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {max: 20, parallel: 2, max_failed: 3}
parameters:
  width: [a, b, c, d, e]
  depth: [1, 2, 3, 4]
"""
STEP = timedelta(seconds=30)  # of simulated time per round


class AutoSweep(SimulatedSweep):
    """`gpus`: of the only node. `endings`: how many running trials end in the next rounds, one per round."""

    def __init__(self, redis, *, gpus=8, most=6, space=SPACE, crash_at=None, **request):
        options = {"parallel": most, "auto": True, "gate": False, **request}
        sweep = {"request": replace(REQUEST, **options)}
        super().__init__(redis, Clock(crash_at), image=True, space=space, sweep=sweep)
        self.time, self.gpus, self.endings, self.first_seen = NOW, gpus, 0, {}
        self.binds = lambda _: True
        self.clients = replace(self.clients, now=lambda: self.time)
        self.cluster.tick = self.clock.tick
        self.measurer = CapacityMeasurer(
            self.cluster, CapacityStore(redis), "sweeps", lambda: self.clients.config, lambda: self.time
        )

    @asynccontextmanager
    async def started(self):
        self.add_node("n1", self.gpus)
        async with super().started():
            yield self

    def add_node(self, name, gpus):
        ready = [{"type": "Ready", "status": "True"}]
        sizes = {GPU: str(gpus), "cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"}
        status = {"allocatable": sizes, "capacity": sizes, "conditions": ready}
        self.kubernetes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        self.kubernetes.patch("Node", "", name, {"status": status}, subresource="status")

    def other_pod(self, name, gpus, namespace="sweeps", waits="", **labels):
        """`waits`: the scheduler's message; "": it hasn't tried yet."""
        main = {"name": "main", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}
        meta = {"name": name, "namespace": namespace, "labels": labels}
        self.kubernetes.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [main]}}
        )
        if waits:
            why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": waits}
            status = {"phase": "Pending", "conditions": [why]}
            self.kubernetes.patch("Pod", namespace, name, {"status": status}, subresource="status")

    async def round(self, *args, **kwargs):
        self.time += STEP
        await self.measurer.measure(listing(self.gpu_pods()))
        await super().round(*args, **kwargs)

    def gpu_pods(self):
        """The store's clock is the machine's: a pod is as old as the rounds since it was there."""
        pods = [found for pod in self.kubernetes.peek("Pod") if (found := read_gpu_pod(pod))]
        return [replace(p, created=self.first_seen.setdefault(p.name, self.time)) for p in pods]

    async def _time_passes(self):
        """Bind what the node has GPUs for, the oldest first, as a scheduler without priorities."""
        for pod in [*self.kubernetes.peek("Pod")]:
            wants = self._size(pod)
            pending = not pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending"
            if pending and self.binds(pod) and wants <= self.gpus - self.used():
                self.kubernetes.patch(*kubernetes.place(pod), {"spec": {"nodeName": "n1"}})
        for pod in [*self.kubernetes.peek("Pod")]:
            labels = pod["metadata"].get("labels", {})
            if "deletionTimestamp" in pod["metadata"]:
                self.kubernetes.delete(*kubernetes.place(pod), grace=0)
            elif not pod["spec"].get("nodeName"):
                continue
            elif pod["status"]["phase"] == "Pending":
                self._status(pod, "Running", {"running": {"startedAt": "2026-11-21T12:00:00Z"}})
            elif pod["status"]["phase"] == "Running" and self.endings and TRIAL_LABEL in labels:
                self.endings -= 1
                self._end(pod, labels)

    def used(self):
        pods = [p for p in self.kubernetes.peek("Pod") if p["spec"].get("nodeName")]
        return sum(self._size(p) for p in pods if p["status"]["phase"] in {"Pending", "Running"})

    @staticmethod
    def _size(pod):
        return sum(
            int(c.get("resources", {}).get("limits", {}).get(GPU, 0)) for c in pod["spec"]["containers"]
        )

    async def asks(self, action):
        await self.store.add_command(SWEEP, Command(action=action, user=OWNER, user_name="ada"))
        await self.rounds(1)

    def running(self):
        """Names of the trials whose pods run."""
        pods = self.kubernetes.peek("Pod")
        return [
            p for p in pods if p["status"]["phase"] == "Running" and p["metadata"]["name"].startswith(SWEEP)
        ]

    def active(self):
        """Names of the trials that run or wait for GPUs."""
        pods = [p for p in self.kubernetes.peek("Pod") if p["metadata"]["name"].startswith(SWEEP)]
        return [p["metadata"]["name"] for p in pods if p["status"]["phase"] in {"Pending", "Running"}]

    def other_runs(self):
        return bool(self.kubernetes.get("Pod", "sweeps", "other")["spec"].get("nodeName"))

    def counts(self):
        spec = self.kubernetes.get("Experiment", "sweeps", SWEEP)["spec"]
        return spec["parallelTrialCount"], spec["maxTrialCount"]

    def line(self):
        """The line about `parallel=auto` in the parent message."""
        text = self.slack.parents[-1].blocks[0]["text"]["text"]
        return next((line for line in text.splitlines() if "(auto)" in line or "Letting" in line), "")

    async def rounds(self, number, endings=0):
        for _ in range(number):
            self.endings += endings
            await self.round()

    async def until(self, holds, rounds=40, endings=0):
        for _ in range(rounds):
            if holds():
                return
            self.endings += endings
            await self.round()
        raise AssertionError(f"{self.counts()}, {len(self.running())} run: {self.line()} {self.slack.posted}")
