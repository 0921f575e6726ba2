"""Two simulated sweeps with several nodes per trial, and a scheduler that binds pods of both in turns."""

from contextlib import asynccontextmanager
from dataclasses import replace

from bot.core.commands import Command
from bot.core.work_item import WorkItem
from bot.platform.storage import sweep_configmap
from bot.platform.storage.work_queue import Lease
from k8s.objects import SWEEP_LABEL
from local.kubernetes.apiserver import store as kubernetes
from tests.bot.factories import OWNER, REQUEST, a_sweep
from tests.scenarios.auto_sweep import AutoSweep
from tests.scenarios.sweep_in_memory import SPACE, SWEEP

SECOND = "lr-calm-fox"


class TwoSweeps(AutoSweep):
    """Each trial has a worker on each of three nodes. `nodes`: with 8 GPUs each."""

    def __init__(self, redis, *, nodes, space=SPACE):
        request = replace(REQUEST, parallel=1, gpus=8, nodes=3, gate=False)
        super().__init__(redis, gpus=8, space=space)
        self.scenario["sweep"] = {"request": request}
        self.request, self.sweeps = request, [SWEEP]
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]

    async def start_another(self, name=SECOND):
        another = a_sweep(request_id=f"trigger-{name}", request=self.request)
        await self.store.create(another, [name], another.request_id)
        self.sweeps.append(name)

    async def both(self, rounds=1):
        for _ in range(rounds):
            for sweep in self.sweeps:
                await self.round(item=sweep)
            assert len(self.half_started()) < 2, "each has nodes that the other one needs"

    async def asks(self, action, sweep=SWEEP, **options):
        command = Command(action=action, user=OWNER, user_name="ada", **options)
        await self.store.add_command(sweep, command)
        await self.both()

    async def restore(self, *sweeps):
        """Lose Redis with all its data, and restore the records of these sweeps from their ConfigMaps."""
        await self.redis.flushall()
        for sweep in sweeps:
            kept = self.kubernetes.get("ConfigMap", "sweeps", f"sweep-{sweep}")
            await self.store.restore(sweep_configmap.read(kept))

    @asynccontextmanager
    async def leased(self, sweep):
        lease = Lease(WorkItem.sweep(sweep), "worker", failures=5, quarantined="bug", key="life:lease:worker")
        await self.redis.set(lease.key, "worker")
        yield lease
        await self.redis.delete(lease.key)

    def parent_of(self, sweep):
        """Return the newest parent message of this sweep."""
        texts = [message.blocks[0]["text"]["text"] for message in self.slack.parents]
        return [text for text in texts if f"*{sweep}*" in text][-1]

    def runs(self, sweep):
        return len({*self.workers(sweep)} - {""}) == 3

    async def until_both(self, holds, rounds=60):
        for _ in range(rounds):
            if holds():
                return
            await self.both()
        raise AssertionError(self.slack.posted)

    def trials_of(self, sweep):
        trials = self.kubernetes.peek("Trial")
        return [t for t in trials if t["metadata"]["name"].startswith(sweep)]

    def workers(self, sweep):
        """Return the nodes of the unfinished workers; "" has none."""
        pods = self.kubernetes.peek("Pod", None, {SWEEP_LABEL: sweep})
        alive = [pod for pod in pods if pod["status"]["phase"] in {"Pending", "Running"}]
        return [pod["spec"].get("nodeName", "") for pod in alive]

    def half_started(self):
        return [each for each in self.sweeps if len({*self.workers(each)} - {""}) in {1, 2}]

    async def _time_passes(self):
        """Bind in turns, as a scheduler does with pods that are created together."""
        free = set(self.nodes) - {pod["spec"].get("nodeName") for pod in self._alive()}
        waiting = [pod for pod in self._alive() if not pod["spec"].get("nodeName") and self._size(pod)]
        for pod in sorted(waiting, key=lambda each: each["metadata"]["name"][::-1]):
            if free:
                self.kubernetes.patch(*kubernetes.place(pod), {"spec": {"nodeName": free.pop()}})
        await super()._time_passes()

    def _alive(self):
        pods = self.kubernetes.peek("Pod")
        return [pod for pod in pods if pod["status"]["phase"] in {"Pending", "Running"}]

    def used(self):
        return self.gpus  # only `_time_passes` above binds
