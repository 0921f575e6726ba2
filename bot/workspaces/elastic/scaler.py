"""Follow the cluster, and set the replicas of each elastic Deployment (bot.workspaces.elastic.supply); pause
one whose number someone else has changed.

A pod that waits for what replicas have wakes the scaler at once; without changes it looks every ten seconds.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from bot.platform.clients import Clients
from bot.platform.config.elastic import ElasticDeployment, is_elastic
from bot.workspaces.elastic.message import ElasticView, names
from bot.workspaces.elastic.preconditions import problem_of, rejection
from bot.workspaces.elastic.records import ElasticRecord, ElasticRecords, Reason
from bot.workspaces.elastic.resume import take, value_of
from bot.workspaces.elastic.supply import Decision, Supply, Times, decide, read_replica, supply
from k8s.api.cache import Cache
from k8s.api.errors import ApiError, SweepbotError
from k8s.api.outage import Outage
from k8s.api.watch import watch_forever
from k8s.nodes.listed import list_unclaimed_nodes
from k8s.nodes.scheduling import OpenNode, ScheduledPod, read_open_node, read_scheduled
from k8s.objects import Manifest, Ref

log = logging.getLogger(__name__)

TICK = 10.0  # seconds
PAUSE = 0.5  # seconds: each look reads every Deployment, and changes of pods come in bursts
NODES_INTERVAL = 60.0  # seconds between two lists of nodes
NODES_STALE = timedelta(minutes=3)
SHOWN_AFTER = timedelta(minutes=1)  # of an interrupted watch
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"  # lower ones are deleted first; default 0


class Scaler:
    """`views` are for messages; `looked` is set after each look. `pause`: seconds after each."""

    def __init__(self, clients: Clients, records: ElasticRecords, pause: float = PAUSE) -> None:
        self._clients, self._records, self._pause = clients, records, pause
        self._woken = asyncio.Event()
        self._pods = WatchedPods(self._woken.set, lambda: clients.config.elastic)
        self._nodes: tuple[OpenNode, ...] = ()
        self._nodes_at: datetime | None = None  # None: not listed yet
        self._free_since: dict[str, datetime | None] = {}
        self._raised_at: datetime | None = None  # of any Deployment
        self._errors: dict[str, str] = {}
        self._seen_at: datetime | None = None  # when pods and nodes were last current
        self.views: dict[str, ElasticView] = {}
        self.looked = asyncio.Event()

    async def run(self) -> None:
        """Watch and scale until cancelled."""
        outage = Outage(self._clients.cluster, lambda: None)
        async with asyncio.TaskGroup() as group:
            watch = watch_forever(self._clients.cluster, self._pods, "", outage, on_fresh=lambda: None)
            group.create_task(watch)
            group.create_task(self._follow_nodes())
            group.create_task(self._react())

    async def _react(self) -> None:
        await self._pods.listed.wait()
        while True:
            await self.look()
            await asyncio.sleep(self._pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK - self._pause):
                    await self._woken.wait()

    async def _follow_nodes(self) -> None:
        while True:
            await self.list_nodes()
            await asyncio.sleep(NODES_INTERVAL)

    async def list_nodes(self) -> None:
        try:
            found = await list_unclaimed_nodes(self._clients.cluster)
            self._nodes = tuple(node for each in found if (node := read_open_node(each)))
        except Exception as error:  # noqa: BLE001 - logged; without nodes, nothing is raised
            log.warning("can't list nodes for elastic replicas: %s", error)
        else:
            self._nodes_at = self._clients.now()
            self._woken.set()

    async def look(self) -> None:
        """Evaluate every Deployment once, and change those that need it."""
        self._woken.clear()
        configured = self._clients.config.elastic
        for each in configured:
            self.views[each.key] = await self._attempt(each)
        for gone in self.views.keys() - {each.key for each in configured}:
            del self.views[gone]
        self.looked.set()

    async def _attempt(self, config: ElasticDeployment) -> ElasticView:
        try:
            view = await self._evaluate(config)
        except Exception as error:  # noqa: BLE001 - logged once; other Deployments must be scaled
            return self._failed(config, error)
        self._errors.pop(config.key, None)
        return view

    def _failed(self, config: ElasticDeployment, error: Exception) -> ElasticView:
        """Return the view after a failed look; the next one repeats what it couldn't do."""
        self._free_since[config.key] = None
        if isinstance(error, ApiError) and (error.stale or error.exists):
            self._woken.set()  # another leader was faster: look again with its record
        elif str(error) != self._errors.get(config.key):
            trace = None if isinstance(error, SweepbotError) else error
            log.warning("can't scale %s: %s", config.key, error, exc_info=trace)
        self._errors[config.key] = str(error)
        before = self.views.get(config.key, ElasticView())
        return replace(before, raise_at=None, problem=rejection(error, self._clients.mask))

    async def _evaluate(self, config: ElasticDeployment) -> ElasticView:
        record = (await self._records.load()).get(config.key, ElasticRecord())
        found, priority = await self._read(config)
        if problem := problem_of(config, found, priority):
            self._free_since[config.key] = None
            return ElasticView(problem=problem)
        replicas = found["spec"].get("replicas", 1)
        record = await self._records.change(config.key, **seen(record, replicas, found))
        if record.found is not None and await take(self._clients.store, value_of(config.key, replicas)):
            record = await self._records.change(config.key, replicas=replicas, found=None, found_by="")
            log.info("resumed %s from %d replicas", config.key, replicas)
        if not self._sees():
            return self._unseen(config, replicas)
        self._seen_at = self._clients.now()
        replica = read_replica(found, priority or 0)
        now_seen = supply(replica, self._nodes, self._pods.pods)
        if record.found is not None:
            return ElasticView(replicas=replicas, supply=now_seen)
        decision = self._decide(config, replicas, now_seen, record)
        if decision.replicas != replicas:
            await self._scale(config, replicas, decision, now_seen)
        return ElasticView(replicas=decision.replicas, supply=now_seen, raise_at=decision.raise_at)

    def _unseen(self, config: ElasticDeployment, replicas: int) -> ElasticView:
        """Return the view without current data; a short interruption isn't shown."""
        self._free_since[config.key] = None
        is_short = self._seen_at and self._clients.now() - self._seen_at < SHOWN_AFTER
        before = self.views.get(config.key, ElasticView()) if is_short else ElasticView()
        return replace(before, replicas=replicas, raise_at=None)

    async def _read(self, config: ElasticDeployment) -> tuple[Manifest, int | None]:
        """Return the Deployment, {} if there is none, and the value of its PriorityClass."""
        found = await self._clients.cluster.get(Ref("Deployment", config.namespace, config.deployment))
        name = found["spec"]["template"]["spec"].get("priorityClassName", "") if found else ""
        class_ = await self._clients.cluster.get(Ref("PriorityClass", "", name)) if name else None
        return found or {}, class_["value"] if class_ else None

    def _sees(self) -> bool:
        """Return whether pods and nodes are current; without that, nothing is raised or lowered."""
        at = self._nodes_at
        return self._pods.complete and at is not None and self._clients.now() - at < NODES_STALE

    def _decide(
        self, config: ElasticDeployment, replicas: int, found: Supply, record: ElasticRecord
    ) -> Decision:
        now, key = self._clients.now(), config.key
        since = self._free_since.get(key)
        times = Times(free_since=since, raised_at=record.raised_at, lowered_at=record.lowered_at)
        decision = decide(config, replicas, found, times, now)
        self._free_since[key] = decision.free_since
        if config.min <= replicas < decision.replicas:
            # The replica that another Deployment just got has no node yet: both would count the same GPUs.
            if self._raised_at and now - self._raised_at < timedelta(seconds=TICK):
                return Decision(replicas=replicas, free_since=since, raise_at=decision.raise_at)
            self._raised_at = now
        return decision

    async def _scale(self, config: ElasticDeployment, before: int, decision: Decision, found: Supply) -> None:
        now, after = self._clients.now(), decision.replicas
        changes = {"raised_at": now} if after > before else {"lowered_at": now}
        reason, given = _why(config, before, after, found)
        await self._records.change(
            config.key,
            replicas=after,
            before=before,
            changed_at=now,
            changed_from=before,
            **{"reason": reason, "given": given} | changes,
        )
        for victim in found.victims if after < before else ():
            await self._mark(victim)
        ref = Ref("Deployment", config.namespace, config.deployment)
        await self._clients.cluster.merge(ref, {"spec": {"replicas": after}}, subresource="scale")
        log.info("scaled %s from %d to %d (%s)", config.key, before, after, reason)

    async def _mark(self, victim: ScheduledPod) -> None:
        """Let the ReplicaSet's controller delete this replica before others."""
        patch = {"metadata": {"annotations": {DELETION_COST: "-100"}}}
        try:
            await self._clients.cluster.merge(Ref("Pod", victim.namespace, victim.name), patch)
        except ApiError as error:
            if not error.absent:
                raise


def seen(record: ElasticRecord, replicas: int, deployment: Manifest) -> dict[str, Any]:
    """Return the record's changes for the number that the Deployment has now."""
    if replicas == record.replicas:
        return {"before": None, "found": None, "found_by": ""}
    if record.replicas is None or replicas == record.before:  # the first look, or a write that never arrived
        return {"replicas": replicas, "before": None, "found": None, "found_by": ""}
    return {"found": replicas, "found_by": _manager(deployment)}


def _manager(deployment: Manifest) -> str:
    """Return who last wrote the number of replicas, such as `kubectl` or `argocd-controller`."""
    entries = [
        each
        for each in deployment["metadata"].get("managedFields") or ()
        if "f:replicas" in ((each.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    latest = max(entries, key=lambda each: str(each.get("time")), default=None)
    return str(latest.get("manager", ""))[:100] if latest else ""


def _why(config: ElasticDeployment, before: int, after: int, found: Supply) -> tuple[Reason, tuple[str, ...]]:
    if before < config.min or before > config.max:
        return Reason.LIMITS, ()
    if after > before:
        return Reason.FREE, ()
    if found.pressure:
        return Reason.GIVEN, names((*found.nominated, *found.pressing))
    return Reason.RESERVE, ()


class WatchedPods(Cache):
    """`on_change` is called for pods that wait for GPUs, and for pods of Deployments with GPUs.

    While a Deployment follows free CPUs, it is also called for its pods, and for all that the scheduler found
    no node for.
    """

    def __init__(
        self, on_change: Callable[[], None], elastic: Callable[[], Sequence[ElasticDeployment]]
    ) -> None:
        super().__init__("Pod", "", lambda _: None)
        self._changed, self._elastic = on_change, elastic
        self._pods: dict[str, ScheduledPod] = {}

    @property
    def pods(self) -> Collection[ScheduledPod]:
        return self._pods.values()

    def key(self, obj: Manifest) -> str:
        return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"

    def put(self, obj: Manifest) -> None:
        key, before = self.key(obj), self._pods.get(self.key(obj))
        found = _read(obj)
        if found is None:
            return self.remove(key)
        self._pods[key] = found
        if found != before and (self._matters(found) or (before and self._matters(before))):
            self._changed()
        return None

    def remove(self, key: str, _version: str = "") -> None:
        if (before := self._pods.pop(key, None)) and self._matters(before):
            self._changed()

    def retain(self, keys: set[str]) -> None:
        for gone in self._pods.keys() - keys:
            self.remove(gone)

    def _matters(self, pod: ScheduledPod) -> bool:
        if pod.gpus:
            return not pod.node or bool(pod.deployment)
        cpus = [each for each in self._elastic() if not each.gpus]
        waits = not pod.node and (pod.waits or bool(pod.nominated))
        return bool(cpus) and (waits or is_elastic(cpus, pod.namespace, pod.name))


def _read(obj: Manifest) -> ScheduledPod | None:
    try:
        return read_scheduled(obj)
    except ValueError as error:
        log.warning("can't read the requests of pod %s: %s", obj["metadata"]["name"], error)
        return None
