"""A cluster in memory: controllers, a scheduler that preempts, and a leader that needs no timers."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta

from redis.exceptions import ConnectionError as RedisDown

from bot.core.commands import load_command
from bot.platform.clients import Clients
from bot.workspaces.elastic.records import ElasticRecords
from bot.workspaces.elastic.reporter import Reporter
from bot.workspaces.elastic.scaler import Scaler
from k8s.api.errors import UnreachableError
from local.kubernetes import scheduler
from local.kubernetes.apiserver.store import Store, place
from local.kubernetes.controllers.deployments import Deployments
from tests.bot.factories import CONFIG, NOW, SETTINGS
from tests.bot.workspaces.elastic.factories import CLASS, LLM, SERVING, deployment_of, node_of, pod_of
from tests.scenarios.fakes import DirectCluster, FakeMessages
from tests.settled import settled

PRIORITY = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": CLASS}}
PRIORITY |= {"value": -100, "preemptionPolicy": "Never"}


class CountingCluster(DirectCluster):
    """Records reads of Deployments, and the numbers written to `scale`.

    `dies_at`: the write before or after which the leader dies.
    """

    def __init__(self, store):
        super().__init__(store)
        self.read, self.scaled, self.writes, self.dies_at, self.dead = [], [], 0, None, False

    async def get(self, ref):
        if ref.kind == "Deployment":
            self.read.append(ref)
        return await super().get(ref)

    async def merge(self, ref, patch, *, subresource=""):
        self._write(before=True)
        if subresource == "scale":
            self.scaled.append(patch["spec"]["replicas"])
        found = await super().merge(ref, patch, subresource=subresource)
        self._write(before=False)
        return found

    async def create(self, manifest):
        self._write(before=True)
        found = await super().create(manifest)
        self._write(before=False)
        return found

    def _write(self, *, before):
        self.writes += before
        self.dead = self.dead or self.dies_at == (self.writes, before)
        if self.dead:
            raise UnreachableError("the worker is dead")


class FakeStore:
    """Commands by mailbox."""

    def __init__(self):
        self.added, self.down = {}, False

    async def add_request(self, mailbox, request):
        self.added.setdefault(mailbox, []).append(load_command(request))

    async def commands(self, mailbox):
        if self.down:
            raise RedisDown
        return self.added.get(mailbox, [])

    async def remove_commands(self, mailbox, commands):
        self.added[mailbox] = [each for each in self.added.get(mailbox, []) if each not in commands]


class ElasticWorld:
    def __init__(self, *nodes, made=None, **config):
        self.now, self.store, self.slack = NOW, Store(), FakeMessages()
        self.cluster = CountingCluster(self.store)
        self.deployments = Deployments(self.store)
        for name in (SERVING, "sweeps"):
            self.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.store.create(PRIORITY)
        for each in nodes or (node_of(gpus=4),):
            node = self.store.create({key: each[key] for key in each if key != "status"})
            self.store.set_status(node, each["status"])
        self.store.create(made or deployment_of())
        unused = dict.fromkeys(("registry", "git", "capacity", "queue"))
        self.clients = Clients(
            **unused,
            store=FakeStore(),
            cluster=self.cluster,
            slack=self.slack,
            settings=SETTINGS,
            config=replace(CONFIG, elastic=(replace(LLM, **config),)),
            now=lambda: self.now,
        )

    @contextlib.asynccontextmanager
    async def started(self):
        self.deployments.start()
        task = asyncio.create_task(scheduler.run(self.store))
        await self.settle()
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.deployments.close()

    @contextlib.asynccontextmanager
    async def led(self, pause=0):
        """Run a leader's scaler: its watch, and what it does at once."""
        records = ElasticRecords(self.clients)
        self.scaler = Scaler(self.clients, records, pause=pause)
        self.reporter = Reporter(self.clients, records, self.scaler)
        task = asyncio.create_task(self.scaler.run())
        try:
            await self.settle()
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def both(self):
        """Configure a second Deployment, and return both."""
        second = deployment_of()
        second["metadata"] = second["metadata"] | {"name": "asr"}
        self.store.create(second)
        [first] = self.clients.config.elastic
        both = (first, replace(first, deployment="asr"))
        self.clients.config = replace(self.clients.config, elastic=both)
        return both

    async def settle(self):
        """Wait until everything has happened that needs no timer."""
        await settled()

    async def passes(self, minutes):
        """Pass simulated time, with a look every ten seconds."""
        for _ in range(round(minutes * 6)):
            self.now += timedelta(seconds=10)
            if not self.now.second:
                await self.scaler.list_nodes()
            await self.look()

    async def look(self):
        await self.scaler.look()
        await self.settle()
        self.run_pods()
        await self.settle()

    async def report(self):
        await self.reporter.report()
        last = [each[-1] for each in self.slack.messages.values()][-1]
        return "\n".join([last.text, *(each["text"]["text"] for each in last.blocks if "text" in each)])

    def run_pods(self):
        """Do what kubelets do: run each new pod."""
        ready = {"type": "Ready", "status": "True"}
        for pod in self.store.list("Pod"):
            if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                conditions = [*pod["status"]["conditions"], ready]
                self.store.set_status(pod, {"phase": "Running", "conditions": conditions})

    def end_pods(self):
        """Do what kubelets do: complete the deletion of terminating pods."""
        for pod in self.store.list("Pod"):
            if "deletionTimestamp" in pod["metadata"]:
                self.store.delete(*place(pod), grace=0)

    def start_pod(self, name="otter", **changes):
        made = pod_of(name, **changes)
        for key in () if "priority" in changes else ("priority",):
            del made["spec"][key]
        return self.store.create(made)

    def end_pod(self, name):
        self.store.delete("Pod", "sweeps", name, grace=0)

    def pod(self, name="otter"):
        return self.store.get("Pod", "sweeps", name)

    @property
    def replicas(self):
        return self.store.get("Deployment", SERVING, "llm")["spec"]["replicas"]

    def running(self):
        """Return the nodes of the replicas that aren't terminating; "" for one without a node."""
        pods = self.store.list("Pod", SERVING)
        return sorted(p["spec"].get("nodeName", "") for p in pods if "deletionTimestamp" not in p["metadata"])

    def scale(self, replicas):
        """Do what `kubectl scale` does."""
        self.store.patch("Deployment", SERVING, "llm", {"spec": {"replicas": replicas}})
