"""The idle GPU monitor with a cluster, Slack, and GPU data in memory, whose worker can die at any call."""

import contextlib
from dataclasses import replace
from datetime import timedelta

from bot.core.commands import Command
from bot.core.record import Phase
from bot.measure.gpus.models import ITEM, NodeUse, NoGpuDataError
from bot.platform.clients import Clients
from bot.platform.config.teams import Team
from bot.platform.slack.client import MessageRejectedError
from bot.platform.storage.free_capacity import CapacityStore
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.watch.idle.monitor import IdleMonitor
from bot.watch.idle.store import AlertStore
from local.kubernetes.apiserver import store as kubernetes
from tests.bot.factories import CONFIG, NOW, OWNER, SETTINGS, a_sweep
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.sweep_in_memory import Clock, CrashingProxy, WorkerCrash

TRIAL = "lr-brave-otter-x"


VISION = Team(name="vision", namespaces=("vision",), members=("UMATE",), channel="C9")


NODE = NodeUse(node="n1", physical=2, allocatable=2, allocated=1)


class FakeSlack:
    def __init__(self) -> None:
        self.posted, self.ephemeral_messages, self.errors, self.number = {}, [], {}, 0  # errors by channel

    async def post(self, channel, message, thread=""):
        if channel in self.errors:
            raise self.errors[channel]
        self.number += 1
        self.posted[f"m{self.number}"] = (channel, thread, message)
        return f"m{self.number}"

    async def delete(self, channel, ts):
        self.posted.pop(ts, None)

    async def update(self, channel, ts, message):
        self.posted[ts] = (*self.posted[ts][:2], message)

    async def open_dm(self, user):
        if user == "UGONE":
            raise MessageRejectedError("user_not_found")
        return f"D-{user}"

    async def post_ephemeral(self, user, text, response_url="", channel="", thread=""):
        if user in self.errors:
            raise self.errors[user]
        if user == "UGONE":
            raise MessageRejectedError("account_inactive")
        self.ephemeral_messages.append((user, text))


class FakeSource:
    def __init__(self, *pods) -> None:
        self.now, self.over, self.errors = pods, [], ()

    async def pods(self, over):
        self.over.append(over / timedelta(minutes=1))
        if self.now is None:
            raise NoGpuDataError("no samples")
        return self.now

    async def xids(self):
        return self.errors

    async def nodes(self):
        return (NODE,) if self.now is not None else ()


class SimulatedMonitor:
    """`dies_at`: the call at which the worker dies; the next run is another worker's."""

    def __init__(self, redis, *pods, crash_at=None, teams=(VISION,), self_assigned=(), cpus=None) -> None:
        self.redis, self.now, self.clock = redis, NOW, Clock(crash_at)
        self.slack, self.source, self.store = FakeSlack(), FakeSource(*pods), Store(redis)
        self.kubernetes = kubernetes.Store()
        self.kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
        self.cluster = DirectCluster(self.kubernetes)
        parts = {"slack": self.slack, "store": self.store, "cluster": self.cluster}
        crashing = {name: CrashingProxy(part, self.clock) for name, part in parts.items()}
        self.queue = Queue(redis)
        clients = Clients(
            **crashing,
            registry=None,
            git=None,
            capacity=CapacityStore(redis),
            queue=CrashingProxy(self.queue, self.clock),
            settings=SETTINGS,
            config=replace(
                CONFIG, teams=teams, admin_channel="CADMINS", self_assigned=frozenset(self_assigned)
            ),
            now=lambda: self.now,
        )
        alerts = CrashingProxy(AlertStore(redis), self.clock)
        self.watching = IdleMonitor(clients, self.source, alerts, cpus=cpus)

    async def sweep(self, phase=Phase.RUNNING, **changes) -> None:
        sweep = a_sweep(phase, **changes)
        await self.store.create(sweep, [sweep.id], "trigger-1")

    async def run(self, minutes=0, *pods):
        self.now, self.source.now = NOW + timedelta(minutes=minutes), pods or self.source.now
        with contextlib.suppress(WorkerCrash):
            return await self.watching.run()

    async def click(self, action, user=OWNER, **what) -> None:
        alert = what.pop("alert", f"idle/sweeps/{TRIAL}")
        await self.store.add_command(
            str(ITEM), Command(action=action, user=user, user_name=user.lower(), alert=alert, **what)
        )

    def texts(self) -> list[str]:
        return [message.blocks[0]["text"]["text"] for _, _, message in self.slack.posted.values()]
