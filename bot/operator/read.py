"""Read the facts about a sweep. That something can't be read is a fact, too."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from redis.asyncio import Redis

from bot.clients import Clients
from bot.core.events import Progress
from bot.core.ids import SWEEP_ID
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.doctor.checks import checked
from bot.doctor.findings import Level
from bot.doctor.probe_services import CHECKS, Installation, Resolver
from bot.health.collect import EvidenceCollector
from bot.health.diagnosis import Diagnosis
from bot.health.unstarted_builds import diagnose_build
from bot.operator.facts import Fault, ObjectFacts, SweepFacts, object_facts
from bot.storage import sweep_configmap
from bot.storage.last_errors import LastErrors
from bot.storage.queue_state import QueueReader
from k8s.api.client import Manifests
from k8s.api.errors import ApiError, UnreachableError
from k8s.katib.spec import EXPERIMENT_LABEL
from k8s.objects import BUILD_LABEL, SWEEP_LABEL, Manifest, Ref
from k8s.pods import is_trial_pod

SERVICES = ("Slack token", "registry", "git", "MLflow")  # checks of the doctor
STARTED = {Phase.PENDING, Phase.RUNNING, Phase.HELD, Phase.PAUSED, Phase.STOPPING}


FindFaults = Callable[[Clients], Awaitable[tuple[Fault, ...]]]
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
        ref, cluster = plan.experiment_ref, self.clients.of(record.cluster).trials
        ours = f"{SWEEP_LABEL}={record.id}"
        experiment = await cluster.get(ref)
        suggestion = await cluster.get(Ref("Suggestion", ref.namespace, ref.name))
        trials = await cluster.list("Trial", ref.namespace, labels=f"{ours},{EXPERIMENT_LABEL}={ref.name}")
        kind = plan.trial_kind.kind
        jobs = await cluster.list(kind, ref.namespace, labels=ours)
        pods = await cluster.list("Pod", ref.namespace, labels=ours)
        objects = [
            *_facts("Experiment", [experiment]),
            *_facts("Suggestion", [suggestion]),
            *_facts("Suggestion pod", (pod for pod in pods if not is_trial_pod(pod))),
            *_facts("Trial", trials),
            *_facts(kind, jobs),
            *_facts("Pod", (pod for pod in pods if is_trial_pod(pod))),
        ]
        return objects, await self._diagnoses(record, plan, experiment, (trials, jobs, pods))

    async def _diagnoses(
        self,
        record: SweepRecord,
        plan: SweepPlan,
        experiment: Manifest | None,
        found: tuple[Manifests, Manifests, Manifests],
    ) -> tuple[Diagnosis, ...]:
        """Diagnose live trials, also after the first success, when reconciles no longer do."""
        if experiment is None:
            return ()
        clients = self.clients.of(record.cluster)
        evidence = EvidenceCollector(replace(record, progress=Progress()), plan, clients)
        await evidence.run(experiment, *found)
        return tuple(evidence.found)  # also those that are too young for the sweep's thread


async def find_faults(clients: Clients) -> tuple[Fault, ...]:
    """Return which services don't work now, by the checks of the doctor. Raises nothing."""
    with Resolver() as resolve:
        target = Installation(settings=clients.settings, config=clients.config, resolve=resolve)
        found = await asyncio.gather(*(checked(name, CHECKS[name](target)) for name in SERVICES))
    broken = (each for findings in found for each in findings if each.level is Level.BROKEN)
    return tuple(Fault(service=each.check, text=each.found, fix=each.fix) for each in broken)


def _facts(kind: str, objects: Iterable[Manifest | None]) -> list[ObjectFacts]:
    return [object_facts(each, kind) for each in objects if each]
