"""A simulation in memory: several sweeps and users, a simulated clock, and a real Redis."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha1
from typing import Any

from redis.asyncio import Redis

from bot.core.errors import UserError
from bot.platform.repos.git import Tip
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from k8s.objects import BUILD_LABEL, SWEEP_LABEL
from local.kubernetes.apiserver.store import place
from tests.bot.factories import NOW
from tests.bot.workspaces.environments.world import ENVIRONMENTS
from tests.chaos.gate import ACTOR, Gate, Gated
from tests.scenarios.fakes import DirectCluster, FakeGit, FakeSlack
from tests.scenarios.sweep_in_memory import Clock, SimulatedSweep
from tests.settled import settled

REAL_TIME, SIMULATED_TIME = "redis.call('TIME')", "{0, table.remove(ARGV)}"  # seconds and microseconds
LATEST = 120.0  # seconds that a pod may outlive its sweep: a late call's object has to be found and deleted
OVER = {"Succeeded", "Failed"}
BAD_BRANCHES = ("bad-0", "bad-1")


class SimulatedQueue(Queue):
    """On the simulated clock: delays, leases and back-off take no real time."""

    def __init__(self, redis: Redis, gate: Gate) -> None:
        super().__init__(redis, prefix="life:queue")
        self._gate = gate
        assert all(REAL_TIME in body for body in self._scripts)
        scripts = {body: body.replace(REAL_TIME, SIMULATED_TIME) for body in self._scripts}
        self._scripts = {body: redis.register_script(script) for body, script in scripts.items()}

    async def _run(self, script, *args):
        return await super()._run(script, *args, int(self._gate.seconds * 1e6))

    @asynccontextmanager
    async def held(self, lease):
        yield  # the gate stops a worker whose lease has expired


class SimulatedStore(Store):
    """Queues items as of the start of the simulated time, so without delay."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis, prefix="life")
        queueing = {name: s.script for name, s in vars(self).items() if REAL_TIME in getattr(s, "script", "")}
        assert queueing
        for name, script in queueing.items():
            setattr(self, name, redis.register_script(script.replace(REAL_TIME, "{0, 0}")))


class Branches(FakeGit):
    """Each branch has a commit of its own."""

    async def resolve(self, url, branch):
        if "," in branch:
            raise UserError(f"branch={branch} doesn't exist in {url}.")
        return Tip(f"refs/heads/{branch}", commit_of(branch))


def commit_of(branch: str) -> str:
    return sha1(branch.encode(), usedforsecurity=False).hexdigest()


class Threads(FakeSlack):
    """Records who posted what, and where."""

    def __init__(self) -> None:
        super().__init__()
        self.opened_for: list[str] = []  # the first lines of parents
        self.threads: dict[str, list[str]] = {}

    async def open_thread(self, channel, message):
        self.opened_for.append(message.text)
        return await super().open_thread(channel, message)

    async def reply(self, channel, thread, message, *, broadcast=False):
        timestamp = await super().reply(channel, thread, message, broadcast=broadcast)
        self.threads.setdefault(thread, []).append(self.posted[-1])
        return timestamp

    async def upload_files(self, channel, thread, text, files, *, at_once=False):
        await super().upload_files(channel, thread, text, files)
        self.threads.setdefault(thread, []).append(text)


class Published:
    """Where a worker publishes the settings. A call past the gate would take a varying number of steps."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def set(self, key, value):
        await self._redis.set(key, value)


class NoUsage:
    """No measured hours: reading them from Redis past the gate would take a varying number of steps."""

    async def of_sweep(self, sweep_id, start, end):
        return ()


class Creations(DirectCluster):
    """Records every object ever created, also deleted ones."""

    def __init__(self, store, gate: Gate) -> None:
        super().__init__(store)
        self._gate, self.created = gate, []
        self.built, self.rebuilt = set(), []  # names of build Jobs that pushed an image, and came again

    async def create(self, manifest):
        made = await super().create(manifest)
        if manifest["kind"] != "ConfigMap":
            self.created.append(made)
            self.rebuilt += [made["metadata"]["name"]] * (made["metadata"]["name"] in self.built)
            self._gate.note(made["metadata"]["labels"].get(SWEEP_LABEL, ""), f"+ {place(made)}")
        return made


class Simulation(SimulatedSweep):
    """Pods, builds and trainings run by themselves; only the calls of the bot go through the gate."""

    def __init__(self, redis: Redis, gate: Gate) -> None:
        super().__init__(redis, Clock(None))
        self.gate = gate
        self.ended: dict[str, float] = {}  # sweeps with live pods: since when they are over
        self.held: set[str] = set()  # pods that outlived their sweep for too long
        self.store = SimulatedStore(redis)
        self.slack, self.cluster = Threads(), Creations(self.kubernetes, gate)
        self.git = Branches(self.git.space, self.git.files)
        self.queue = SimulatedQueue(redis, gate)
        parts = {"store": self.store, "queue": self.queue, "cluster": self.cluster, "slack": self.slack}
        parts |= {"git": self.git, "registry": self.registry, "results": self.clients.results._inner}
        gated = {system: Gated(part, system, gate) for system, part in parts.items()}
        config = replace(self.clients.config, environments=ENVIRONMENTS)
        self.clients = replace(self.clients, **gated, config=config, usage=NoUsage(), now=self.now)

    def now(self):
        actor = ACTOR.get(None)
        return NOW + timedelta(seconds=self.gate.seconds + (actor.clock if actor else 0))

    async def settle(self) -> None:
        """Until no call is under way and the controllers have nothing left to do."""
        await settled()
        while self.gate.in_flight:
            await asyncio.sleep(0)
            await settled()

    async def kubelet(self) -> None:
        """Advance every pod by one step and read the state of each sweep, past the gate."""
        for sweep_id in await self.store.active():
            self.ended.pop(sweep_id, None)
        for sweep_id in {pod["metadata"]["labels"].get(SWEEP_LABEL, "") for pod in self.alive()} - {""}:
            record = await self.store.get(sweep_id)
            if record and record.phase.final:
                self.ended.setdefault(sweep_id, self.gate.seconds)
        await self._time_passes()
        await self.settle()
        for pod in self.alive():
            sweep_id = pod["metadata"]["labels"].get(SWEEP_LABEL, "")
            if self.gate.seconds - self.ended.get(sweep_id, self.gate.seconds) > LATEST:
                self.held.add(sweep_id)

    def alive(self) -> list[dict[str, Any]]:
        return [pod for pod in self.kubernetes.list("Pod") if pod["status"]["phase"] not in OVER]

    def _ends(self, labels) -> bool:
        return BUILD_LABEL in labels or fate(labels[SWEEP_LABEL]) != "endless"

    def _end(self, pod, labels) -> None:
        sweep = labels.get(SWEEP_LABEL, "")
        bad = [f"-{commit_of(branch)[:12]}-" for branch in BAD_BRANCHES]
        bad = [each for each in bad if each in labels.get(BUILD_LABEL, "")]
        self.scenario = {"crash": fate(sweep) == "crashing"} | ({"bad_build": bad[0]} if bad else {})
        super()._end(pod, labels)
        if BUILD_LABEL in labels and not bad:
            self.cluster.built.add(labels[BUILD_LABEL])


def fate(sweep_id: str) -> str:
    """What becomes of a sweep's trainings: the first word of its name."""
    return sweep_id.partition("-")[0]
