"""The metrics of a node's dcgm-exporter. GPUs are simulated: each is as busy as the CPU of its processes."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from local.kubernetes import device_allocation, scheduler
from local.kubernetes.apiserver.store import Store, place
from local.kubernetes.node.container import Container

TICKS = os.sysconf("SC_CLK_TCK")
METRIC = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
LINE = (
    METRIC
    + '{{gpu="{gpu}",UUID="GPU-{node}-{gpu}",modelName="Local GPU",Hostname="{node}",{pod}}} {share:.6f}'
)
UNALLOCATED = 'container="",namespace="",pod=""'


class Gpus:
    """The GPUs of one node. Each is allocated to a pod until that has ended."""

    def __init__(self, store: Store, node: str, count: int) -> None:
        self._store, self._node, self._holders = store, node, [""] * count  # uids
        self._seen: dict[int, tuple[float, float]] = {}  # process -> when, and CPU seconds so far

    def metrics(self, containers: Iterable[Container]) -> str:
        busy = {
            one.pod["metadata"]["uid"]: one
            for one in containers
            if "running" in one.state and self._gpus(one)
        }
        self._holders = [uid if uid in busy else "" for uid in self._holders]
        for uid, one in busy.items():
            while self._holders.count(uid) < self._gpus(one) and "" in self._holders:
                self._holders[self._holders.index("")] = uid
        shares = {uid: self._share(one) for uid, one in busy.items()}
        labels = {uid: _labels(one) for uid, one in busy.items()} | {"": UNALLOCATED}
        lines = [
            LINE.format(node=self._node, gpu=gpu, pod=labels[uid], share=shares.get(uid, 0.0))
            for gpu, uid in enumerate(self._holders)
        ]
        return "\n".join([f"# TYPE {METRIC} gauge", *lines, ""])

    def _share(self, container: Container) -> float:
        """Return utilization since the last call, without the first tick, which can be of almost no work."""
        if not container.process:
            return 0.0
        now, used, pid = time.monotonic(), _cpu_seconds(container.process.pid), container.process.pid
        then, before = self._seen.get(pid, (now - 1, used))
        self._seen[pid] = (now, used)
        return min(1.0, max(0.0, used - before - 1 / TICKS) / max(now - then, 0.01))

    def _gpus(self, container: Container) -> int:
        claimed = container.spec.get("resources", {}).get("claims") and self._store.get(*place(container.pod))
        devices = len(device_allocation.allocated(self._store, claimed)) if claimed else 0
        return devices or scheduler.gpus({"spec": {"containers": [container.spec]}})


def _labels(container: Container) -> str:
    meta = container.pod["metadata"]
    return f'container="{container.name}",namespace="{meta["namespace"]}",pod="{meta["name"]}"'


def _cpu_seconds(session: int) -> float:
    """Return the CPU seconds of all processes of a session, and of ended children (proc(5), stat)."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(int(each) for each in fields[11:15])
    return ticks / TICKS
