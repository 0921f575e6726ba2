"""What is known about one sweep: its record, its queue item, its objects, each with its state in words, such
as `Evicted`, and the last errors.

That something can't be read is a fact, too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from redis.asyncio import Redis

from bot.core.events import Progress
from bot.core.finding import Finding
from bot.core.ids import SWEEP_ID
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.platform.clients import Clients
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.storage import sweep_configmap
from bot.platform.storage.last_errors import LastError, LastErrors
from bot.platform.storage.queue_state import ItemState, QueueReader
from bot.sweep.builds.rules_building import diagnose_build
from bot.sweep.feature_table import FEATURES
from bot.sweep.model import engine
from bot.sweep.model.observation import RawObjects
from k8s.api.errors import ApiError, UnreachableError
from k8s.objects import BUILD_LABEL, SWEEP_LABEL, Manifest, parse_time, true_conditions
from k8s.pods import is_trial_pod
from k8s.trial_kinds import is_suspended

PODS = {"Pod", "Suggestion pod"}
CURRENT = timedelta(minutes=15)  # a failed retry is repeated every 5 minutes at most

FindFaults = Callable[[Clients], Awaitable[tuple[Finding, ...]]]


@dataclass(frozen=True, kw_only=True)
class ObjectFacts:
    """One object of the sweep in the cluster."""

    kind: str  # in Kubernetes, or "Suggestion pod"
    namespace: str
    name: str
    state: str
    created: datetime | None = None
    deleted: datetime | None = None  # when its deletion began
    finalizers: tuple[str, ...] = ()
    waiting: str = ""  # of a suggestion service: why its container doesn't run


@dataclass(frozen=True, kw_only=True)
class SweepFacts:
    sweep: str
    now: datetime
    record: SweepRecord | None = None  # in Redis
    unreadable: str = ""  # why the record in Redis can't be read
    stored: SweepRecord | None = None  # in the ConfigMap
    item: ItemState
    has_worker: bool
    errors: tuple[LastError, ...] = ()  # the latest first
    cluster_error: str = ""  # why the cluster can't be read
    cluster_refuses: bool = False  # it answered with an error
    objects: tuple[ObjectFacts, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    faults: tuple[Finding, ...] = ()  # services that don't work now

    @property
    def known(self) -> SweepRecord | None:
        """The record, or else its copy in the cluster."""
        return self.record or self.stored

    @property
    def missing(self) -> bool:
        """Whether nothing has this name: no record in Redis or the cluster, and no item of the queue."""
        unread = self.unreadable or self.cluster_error
        return not (self.known or unread) and self.item.state == "absent"

    @property
    def phase(self) -> Phase | None:
        return self.known.phase if self.known else None

    @property
    def overdue(self) -> timedelta:
        """How long the item has been due without a worker that took it."""
        late = self.item.state in {"ready", "delayed"} and self.item.due
        return max(self.now - late, timedelta(0)) if late else timedelta(0)

    def error(self, *services: str) -> LastError | None:
        """Return the latest error of these services, if it is recent."""
        found = (each for each in self.errors if each.service in services)
        return next((each for each in found if self.now - each.at <= CURRENT), None)

    def fault(self, check: str) -> Finding | None:
        return next((each for each in self.faults if each.check == check), None)


def object_facts(obj: Manifest, kind: str) -> ObjectFacts:
    meta = obj["metadata"]
    return ObjectFacts(
        kind=kind,
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        state=_state(obj, kind),
        created=parse_time(meta.get("creationTimestamp")),
        deleted=parse_time(meta.get("deletionTimestamp")),
        finalizers=tuple(meta.get("finalizers") or ()),
        waiting=_not_running(obj) if kind in PODS else "",
    )


def _state(obj: Manifest, kind: str) -> str:
    status = obj.get("status") or {}
    if kind in PODS:
        why = _not_running(obj) or _failure(status)
        return ": ".join(filter(None, (status.get("phase", "unknown"), why)))
    if is_suspended(obj):
        return "suspended"
    if kind == "Job":
        counts = (f"{status[key]} {key}" for key in ("active", "succeeded", "failed") if status.get(key))
        return ", ".join(counts) or "no pod"
    conditions = true_conditions(obj)
    latest = max(conditions.values(), key=lambda c: c.get("lastTransitionTime") or "", default=None)
    return str(latest["type"]) if latest else "new"


def _not_running(pod: Manifest) -> str:
    """Return the reason and message of the first container that waits, and why it was killed."""
    status = pod.get("status") or {}
    for group in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(group) or ():
            state, last = each.get("state") or {}, each.get("lastState") or {}
            if waits := state.get("waiting"):
                killed = (last.get("terminated") or {}).get("reason", "")
                parts = (waits.get("reason", ""), killed, waits.get("message", ""))
                return ": ".join(filter(None, parts))
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message", ""))
    return ""


def _failure(status: Manifest) -> str:
    """Return why a pod was evicted, or its first failed container's reason."""
    if why := status.get("reason"):
        return ": ".join(filter(None, (why, status.get("message", ""))))
    ends = (
        (each.get("state") or {}).get("terminated") or {} for each in status.get("containerStatuses") or ()
    )
    return next((str(end.get("reason", "")) for end in ends if end.get("exitCode")), "")


def phase_name(phase: Phase) -> str:
    """Return the phase in the words of messages; records store some older names."""
    return phase.name.lower()


Found = tuple[list[ObjectFacts], tuple[Diagnosis, ...]]


@dataclass(frozen=True)
class FactReader:
    """`find_faults` returns the services that don't work now."""

    clients: Clients
    redis: Redis
    find_faults: FindFaults

    async def read(self, sweep: str) -> SweepFacts:
        """Return all facts. Raises redis.exceptions.RedisError."""
        queue = QueueReader(self.redis, self.clients.queue.prefix)
        record, unreadable = await self._record(sweep)
        facts = SweepFacts(
            sweep=sweep,
            now=self.clients.now(),
            record=record,
            unreadable=unreadable,
            item=await queue.item(sweep),
            has_worker=await queue.has_worker(),
            errors=await LastErrors(self.redis).of(sweep),
        )
        cluster, faults = await asyncio.gather(self._with_cluster(facts), self.find_faults(self.clients))
        return replace(cluster, faults=faults)

    async def _record(self, sweep: str) -> tuple[SweepRecord | None, str]:
        try:
            return await self.clients.store.get(sweep), ""
        except ValueError as error:
            return None, str(error)

    async def _with_cluster(self, facts: SweepFacts) -> SweepFacts:
        if not SWEEP_ID.fullmatch(facts.sweep):  # it becomes part of a URL
            return facts
        try:
            facts = replace(facts, stored=await self._stored(facts.sweep))
            if facts.known and facts.known.plan:
                return await self._with_objects(facts, facts.known, facts.known.plan)
        except ApiError as error:
            return replace(facts, cluster_error=str(error), cluster_refuses=not error.outage)
        except UnreachableError as error:
            return replace(facts, cluster_error=str(error) or "no response")
        return facts

    async def _stored(self, sweep: str) -> SweepRecord | None:
        ref = sweep_configmap.ref(self.clients.settings.k8s_namespace, sweep)
        found = await self.clients.cluster.get(ref)
        try:
            return sweep_configmap.read(found) if found else None
        except (KeyError, ValueError):  # emptied after SWEEP_DAYS, or of a newer Sweepbot
            return None

    async def _with_objects(self, facts: SweepFacts, record: SweepRecord, plan: SweepPlan) -> SweepFacts:
        if record.phase is Phase.BUILDING:
            objects, diagnoses = await self._builds(plan)
        else:
            objects, diagnoses = await self._experiment(record, plan)
        return replace(facts, objects=tuple(objects), diagnoses=diagnoses)

    async def _builds(self, plan: SweepPlan) -> Found:
        objects, diagnoses = list[ObjectFacts](), list[Diagnosis]()
        for build in plan.builds:
            job = await self.clients.cluster.get(build.ref)
            if job is None:
                continue
            label = f"{BUILD_LABEL}={build.ref.name}"
            pods = await self.clients.cluster.list("Pod", build.ref.namespace, labels=label)
            objects += [object_facts(job, "Job"), *(object_facts(pod, "Pod") for pod in pods)]
            if found := await diagnose_build(build.ref, job, pods, self.clients):
                diagnoses.append(found)
        return objects, tuple(diagnoses)

    async def _experiment(self, record: SweepRecord, plan: SweepPlan) -> Found:
        namespace, cluster = plan.experiment_ref.namespace, self.clients.of(record.cluster).trials
        ours, kind = f"{SWEEP_LABEL}={record.id}", plan.trial_kind.kind
        experiment = await engine.find_experiment(plan, cluster)
        search = await cluster.get(engine.search_ref(plan))
        trials = await engine.list_trials(record, plan, cluster)
        jobs = await cluster.list(kind, namespace, labels=ours)
        pods = await cluster.list("Pod", namespace, labels=ours)
        objects = [
            *_facts(engine.EXPERIMENT, [experiment.raw if experiment else None]),
            *_facts(engine.SEARCH, [search]),
            *_facts("Suggestion pod", (pod for pod in pods if not is_trial_pod(pod))),
            *_facts(engine.TRIAL, (trial.raw for trial in trials)),
            *_facts(kind, jobs),
            *_facts("Pod", (pod for pod in pods if is_trial_pod(pod))),
        ]
        raw = RawObjects(experiment=experiment, trials=trials, jobs=jobs, pods=pods)
        return objects, await self._diagnoses(record, plan, raw)

    async def _diagnoses(
        self, record: SweepRecord, plan: SweepPlan, raw: RawObjects
    ) -> tuple[Diagnosis, ...]:
        """Diagnose live trials, also after the first success, when reconciles no longer do."""
        if raw.experiment is None:
            return ()
        clients = self.clients.of(record.cluster)
        examined = [
            await each.examine(replace(record, progress=Progress()), plan, raw, clients)
            for each in FEATURES
            if each.examine
        ]
        return tuple(diagnosis for some in examined for diagnosis in some)


def _facts(kind: str, objects: Iterable[Manifest | None]) -> list[ObjectFacts]:
    return [object_facts(each, kind) for each in objects if each]
