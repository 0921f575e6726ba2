"""The nodes: their objects, the pods bound to them, and their logs."""

import asyncio
import logging
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from local.kubernetes import scheduler
from local.kubernetes.apiserver.kinds import Object, Refused, timestamp
from local.kubernetes.apiserver.store import Store, place
from local.kubernetes.node import container_inputs, reboot
from local.kubernetes.node.container import Builtin, Container, Node
from local.kubernetes.node.container_inputs import NotReady
from local.kubernetes.node.dcgm import Gpus

log = logging.getLogger(__name__)

OVER_TIME = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
ADDRESS = "127.0.0.1"
MIN_CPUS = 64  # as a server with GPUs has, also on a laptop: requests of pods must fit
PROBE_SECONDS = 0.1  # between startup probes: a real kubelet's are a second apart at least
ENDED = ("Succeeded", "Failed")


class Kubelet:
    """Nodes with this many GPUs each; pods write below `folder`. `retry`: seconds."""

    def __init__(
        self,
        store: Store,
        nodes: Mapping[str, int],
        registry: str,
        builtins: Mapping[str, Builtin],
        folder: Path,
        retry: float = 10.0,
    ) -> None:
        self.store, self.nodes, self.folder = store, nodes, folder
        self.node = Node(store, registry, builtins, retry)
        self._pods: dict[str, _Pod] = {}
        self._gpus = {name: Gpus(store, name, count) for name, count in nodes.items()}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for name, gpus in self.nodes.items():
            if not self.store.get("Node", "", name):
                _register(self.store, name, gpus)
        for pod in self.store.list("Pod"):
            if pod["spec"].get("nodeName") in self.nodes:
                reboot.recover(self.store, pod, self.folder / pod["metadata"]["uid"])
        self._tasks = [asyncio.create_task(scheduler.run(self.store)), asyncio.create_task(self._follow())]

    async def close(self) -> None:
        """Stop every process; the pod objects stay."""
        tasks = [*self._tasks, *(pod.task for pod in self._pods.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        tail_lines: int | None = None,
        since: datetime | None = None,
    ) -> str:
        """Return the container's log so far; "" before it runs.

        Only the file has a time here, not its lines: a file last written before `since` counts as empty.
        """
        found = self.store.get("Pod", namespace, pod)
        there = self.folder / (found["metadata"]["uid"] if found else "unknown")
        file = there / f"{container}.log"
        if not file.exists():
            return ""
        if since and file.stat().st_mtime < since.timestamp():
            return ""
        text = file.read_text(errors="replace")
        text = text.replace(f"{there / container}/", "/")  # paths as the container knows them
        lines = text.splitlines(keepends=True)
        return "".join(lines if tail_lines is None else lines[-tail_lines or len(lines) :])

    def metrics(self, node: str) -> str:
        """Return the metrics page of a node's dcgm-exporter."""
        here = [pod for pod in self._pods.values() if pod.pod["spec"]["nodeName"] == node]
        return self._gpus[node].metrics(one for pod in here for one in pod.containers)

    async def _follow(self) -> None:
        async for type_, pod in self.store.subscribe("Pod"):
            uid, meta = pod["metadata"]["uid"], pod["metadata"]
            if type_ == "DELETED":
                self._forget(uid)
            elif pod["spec"].get("nodeName") in self.nodes:
                if uid not in self._pods and not ("deletionTimestamp" in meta or _has_ended(pod)):
                    self._pods[uid] = _Pod(self.node, pod, self.folder / uid)
                if uid in self._pods and "deletionTimestamp" in meta:
                    self._pods[uid].stop(meta["deletionGracePeriodSeconds"])

    def _forget(self, uid: str) -> None:
        if pod := self._pods.pop(uid, None):
            pod.task.cancel()
            pod.task.add_done_callback(lambda _: shutil.rmtree(pod.folder, ignore_errors=True))


class _Pod:
    """A pod on its node. Cancelling `task` kills it; `stop` terminates it as a deletion does."""

    def __init__(self, node: Node, pod: Object, folder: Path) -> None:
        self.node, self.pod, self.folder = node, pod, folder
        self.started = timestamp()
        self.failure: tuple[str, str] | None = None  # reason and message of a pod that the kubelet ended
        self.asked_to_stop: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        folder.mkdir(parents=True)
        self.inits, self.mains = [
            [
                Container(node, pod, spec, folder, self._report, self._event)
                for spec in pod["spec"].get(group, [])
            ]
            for group in ("initContainers", "containers")
        ]
        self.over = asyncio.Event()  # sidecars are told to stop
        self.mounted_at = self.ready_at = ""
        for one in self.mains if self.inits else ():
            one.state = {"waiting": {"reason": "PodInitializing"}}
        self.task = asyncio.create_task(self._live())

    @property
    def containers(self) -> list[Container]:
        return [*self.inits, *self.mains]

    def stop(self, grace: int) -> None:
        """Send SIGTERM now, and SIGKILL after `grace` seconds."""
        if not self.asked_to_stop.done():
            self.asked_to_stop.set_result(grace)

    async def _live(self) -> None:
        self._report()
        work = asyncio.create_task(self._run())
        try:
            either: list[asyncio.Future[Any]] = [work, self.asked_to_stop]
            longest, grace = (
                self.pod["spec"].get(key)
                for key in ("activeDeadlineSeconds", "terminationGracePeriodSeconds")
            )
            done, _ = await asyncio.wait(either, timeout=longest, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                self.failure = OVER_TIME
                self._event("Normal", *OVER_TIME)
                await self._end(work, grace)
            if work.done() and not work.cancelled() and (error := work.exception()):
                log.error("this world could not run pod %s", self.pod["metadata"]["name"], exc_info=error)
            if self.asked_to_stop.done():
                await self._end(work, self.asked_to_stop.result())
            await self.asked_to_stop
            self._remove()
        finally:
            self._kill()
            work.cancel()
            await asyncio.wait([work])

    async def _run(self) -> None:
        """Start the containers in order; one that can't start yet doesn't block the others."""
        volumes = await self._volumes()
        self.mounted_at = timestamp()
        async with asyncio.TaskGroup() as sidecars:
            for number, one in enumerate(self.inits):
                if one.is_sidecar:
                    sidecars.create_task(self._keep(number, volumes))
                    while not await self.inits[number].has_started(volumes):  # noqa: ASYNC110 - polls
                        await asyncio.sleep(PROBE_SECONDS)
                    continue
                await one.run(volumes, {})
                if await one.exit:
                    break
            else:
                await self._run_mains(volumes)
            await self._stop_sidecars(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    async def _run_mains(self, volumes: Mapping[str, Path]) -> None:
        async with asyncio.TaskGroup() as group:
            if _probe(self.pod):
                group.create_task(self._become_ready(_probe(self.pod)))
            for one in self.mains:
                siblings = {other.name: other.exit for other in self.mains if other.started}
                group.create_task(one.run(volumes, siblings))
                await one.tried.wait()

    async def _keep(self, number: int, volumes: Mapping[str, Path]) -> None:
        """Run a sidecar, and again whenever it ends: at once, and then with a backoff."""
        pause = 0.0
        while not self.over.is_set():
            ended = self.inits[number]
            await ended.run(volumes, {})
            if self.over.is_set():
                return
            args = (self.node, self.pod, ended.spec, self.folder, self._report, self._event)
            self.inits[number] = Container(*args, before=ended)
            self.inits[number].state = {"waiting": {"reason": "CrashLoopBackOff"}}
            self._report()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.over.wait()
            pause = 2 * pause or self.node.retry

    async def _stop_sidecars(self, grace: int) -> None:
        """Send SIGTERM once, in reverse order, and SIGKILL after `grace` seconds."""
        alive = [one for one in reversed(self.inits) if one.is_sidecar and "running" in one.state]
        for one in () if self.over.is_set() else alive:
            self._event("Normal", "Killing", f"Stopping container {one.name}")
            one.terminate()
        self.over.set()
        if ends := [one.exit for one in alive]:
            await asyncio.wait(ends, timeout=grace)
            for one in alive:
                one.kill()
            await asyncio.wait(ends)

    async def _volumes(self) -> dict[str, Path]:
        while True:
            try:
                return container_inputs.make_volumes(self.node.store, self.pod, self.folder / "volumes")
            except NotReady as error:
                self._event("Warning", "FailedMount", str(error))
                await asyncio.sleep(self.node.retry)

    async def _become_ready(self, probe: Object) -> None:
        """Report the pod ready once its server answers; it stays so while it runs."""
        while not (self.mains[0].started and await asyncio.to_thread(_answers, self.pod, probe)):  # noqa: ASYNC110 - polls
            await asyncio.sleep(probe.get("periodSeconds", 10))
        self.ready_at = timestamp()
        self._report()

    async def _end(self, work: asyncio.Task[None], grace: int) -> None:
        """Terminate processes, sidecars last, then kill them; builtins are cancelled."""
        alive = [one for one in self.containers if "running" in one.state and not one.is_sidecar]
        for one in alive:
            self._event("Normal", "Killing", f"Stopping container {one.name}")
        for one in alive:
            one.terminate()
        if processes := [one.exit for one in alive if one.process]:
            await asyncio.wait(processes, timeout=grace)
            for one in alive:
                one.kill()
            await asyncio.wait(processes)
        await self._stop_sidecars(grace)
        work.cancel()
        await asyncio.wait([work])

    def _kill(self) -> None:
        for one in self.containers:
            if not one.exit.done():
                one.kill()

    def _remove(self) -> None:
        """Set the phase of a terminated pod to Failed, so that its Job doesn't wait."""
        uid, current = self.pod["metadata"]["uid"], self.node.store.get(*place(self.pod))
        if current and current["metadata"]["uid"] == uid and current["status"]["phase"] not in ENDED:
            self.node.store.set_status(current, {**current["status"], "phase": "Failed"})
        with suppress(Refused):
            self.node.store.delete(*place(self.pod), grace=0, uid=uid)

    def _event(self, type_: str, reason: str, message: str) -> None:
        self.node.store.record_event(self.pod, type_, reason, message, "kubelet")

    def _report(self) -> None:
        meta = self.pod["metadata"]
        current = self.node.store.get(*place(self.pod))
        if current and current["metadata"]["uid"] == meta["uid"]:
            inits = [one.state for one in self.inits if not one.is_sidecar]
            kept = [one.state for one in self.inits if one.is_sidecar]
            phase = _phase(inits, [one.state for one in self.mains], kept)
            statuses = [one.status for one in self.mains]
            status = {"phase": phase, "startTime": self.started, "containerStatuses": statuses}
            status |= {"initContainerStatuses": [one.status for one in self.inits]} if self.inits else {}
            if _probe(self.pod):
                status |= self._readiness(current, phase)
            if self.failure:
                status |= dict(zip(("phase", "reason", "message"), ("Failed", *self.failure), strict=True))
            self.node.store.set_status(current, {**current["status"], **status})

    def _readiness(self, current: Object, phase: str) -> Object:
        """Return the address, and the conditions as the kubelet of 1.29 and later sets them."""
        times = {"PodReadyToStartContainers": self.mounted_at, "Ready": self.ready_at * (phase == "Running")}
        said = [c for c in current["status"].get("conditions", []) if c["type"] not in times]
        own = {"lastProbeTime": None, "status": "True"}
        said += [{"type": name, "lastTransitionTime": at} | own for name, at in times.items() if at]
        return {"podIP": ADDRESS, "conditions": said}


def _has_ended(pod: Object) -> bool:
    return pod["status"].get("phase") in ENDED


def _probe(pod: Object) -> Object:
    """Return the readiness probe of the first container; empty if there is none."""
    probe: Object = pod["spec"]["containers"][0].get("readinessProbe", {})
    return probe


def _answers(pod: Object, probe: Object) -> bool:
    """Return whether the server of an httpGet or tcpSocket probe answers; its port can be a name."""
    given = probe.get("httpGet") or probe["tcpSocket"]
    names = {
        each.get("name"): each["containerPort"] for each in pod["spec"]["containers"][0].get("ports", [])
    }
    port = names.get(given["port"], given["port"])
    with suppress(OSError):
        if "tcpSocket" in probe:
            socket.create_connection((ADDRESS, port), timeout=5).close()
        else:
            urlopen(f"http://{ADDRESS}:{port}{given['path']}", timeout=5).close()
        return True
    return False


def _phase(inits: list[Object], states: list[Object], sidecars: list[Object]) -> str:
    """Return the phase as the kubelet's getPhase does for restartPolicy Never.

    A running sidecar counts as running, and no sidecar's exit code counts.
    """
    if any(state.get("terminated", {}).get("exitCode") for state in inits):
        return "Failed"
    if any("waiting" in state for state in states):
        return "Pending"
    if any("running" in state for state in (*states, *sidecars)):
        return "Running"
    return "Failed" if any(state["terminated"]["exitCode"] for state in states) else "Succeeded"


def _register(store: Store, name: str, gpus: int) -> None:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
    cpus = max(MIN_CPUS, os.cpu_count() or 0)
    sizes = {"cpu": str(cpus), "memory": f"{memory}Ki", "pods": "110", scheduler.GPU: str(gpus)}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": timestamp(),
        "lastTransitionTime": timestamp(),
    }
    addresses = [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": name}]
    status = {"capacity": sizes, "allocatable": sizes, "conditions": [ready], "addresses": addresses}
    node = store.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    store.set_status(node, status)
