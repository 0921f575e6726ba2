"""Collect the evidence from which first trials are diagnosed, only for those that can have a problem.

Events, logs, and nodes cost one call each, so a reconcile examines a few live trials, and each failed
one once.
"""

from collections.abc import Iterable
from datetime import timedelta

from bot.clients import Clients
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.health.cluster_events import find_workload, list_events, list_if_allowed
from bot.health.diagnosis import Diagnosis
from bot.health.evidence import TrialEvidence, event_time
from bot.health.rules import diagnose, due, next_due
from bot.health.rules_training import not_finite
from bot.health.workers import explaining
from k8s.api.client import Manifests
from k8s.kueue import places, read_workload
from k8s.objects import Manifest, Ref, still_live, true_conditions
from k8s.pods import COLLECTORS, is_trial_pod
from k8s.trial_kinds import creators_of_pods, job_of_pod, training_container

MAX_LIVE = 3  # live trials examined per reconcile
MAX_EXAMINED = 20  # failed trials examined per sweep; more are only counted
TRIAL_LOG_LINES = 200  # with several processes, the cause can be far above the last line
POLL_INTERVAL = timedelta(seconds=10)  # events and logs are not watched
POLL_DURATION = timedelta(minutes=15)  # of a running sweep, until its first success
SUCCEEDED = {"Succeeded", "Killed", "EarlyStopped"}
FAILED_CONDITIONS = {"Failed", "MetricsUnavailable"}


class EvidenceCollector:
    def __init__(self, sweep: SweepRecord, plan: SweepPlan, clients: Clients) -> None:
        self.sweep, self.plan, self.clients = sweep, plan, clients
        self.namespace, self.now = plan.experiment_ref.namespace, clients.now()
        self.found: list[Diagnosis] = []
        self._asked_queue = False

    async def run(self, experiment: Manifest, trials: Manifests, jobs: Manifests, pods: Manifests) -> None:
        if self.sweep.phase not in {Phase.PENDING, Phase.RUNNING}:
            return
        if not trials:
            self._note(await self._without_trials(experiment, pods))
        logs = 1
        for trial in self._suspects(trials):
            evidence = await self._examine(experiment, trial, jobs, pods, read=logs > 0)
            logs -= evidence.running
            self._note(evidence)

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        return due(self.found, self.now)

    @property
    def requeue_after(self) -> timedelta | None:
        """Time until the next reconcile; None if nothing is urgent."""
        at = next_due(self.found, self.now)
        waits = [self._poll(), at - self.now if at else None]
        return min((wait for wait in waits if wait), default=None)

    def _poll(self) -> timedelta | None:
        first = self.sweep.phase is Phase.RUNNING and not self.sweep.progress.succeeded
        soon = first and self.now - self.sweep.since < POLL_DURATION
        return POLL_INTERVAL if soon or self.sweep.phase is Phase.PENDING else None

    def _note(self, evidence: TrialEvidence) -> None:
        if found := diagnose(evidence):
            self.found.append(found)

    def _suspects(self, trials: Manifests) -> Manifests:
        sweep = self.sweep
        rest = [t for t in _by_age(trials) if _name(t) not in {*sweep.examined, *sweep.to_kill}]
        live = [t for t in rest if not (SUCCEEDED | FAILED_CONDITIONS) & true_conditions(t).keys()]
        failed = [t for t in rest if FAILED_CONDITIONS & true_conditions(t).keys()]
        # Katib counts a trial whose metric is NaN or infinite as succeeded.
        metric = self.plan.space.metric
        nan = [t for t in rest if "Succeeded" in true_conditions(t) and not_finite(t, metric)]
        new = (failed + nan)[: 1 if len(sweep.examined) < MAX_EXAMINED else 0]
        return new if sweep.progress.succeeded else new + live[:MAX_LIVE]

    async def _without_trials(self, experiment: Manifest, pods: Manifests) -> TrialEvidence:
        ref = self.plan.experiment_ref
        suggestion = await self.clients.trials.get(Ref("Suggestion", ref.namespace, ref.name))
        events = [*await self._events("Experiment", ref.name), *await self._events("Suggestion", ref.name)]
        services = tuple(pod for pod in pods if not is_trial_pod(pod))
        return self._evidence(experiment, suggestion=suggestion, services=services, events=_in_order(events))

    async def _examine(
        self, experiment: Manifest, trial: Manifest, jobs: Manifests, pods: Manifests, *, read: bool
    ) -> TrialEvidence:
        name = _name(trial)
        job = next((j for j in jobs if _name(j) == name), None)
        mine = [p for p in pods if job_of_pod(p) == name]
        pod = _latest(mine) if self.plan.nodes == 1 else explaining(_by_age(mine), self.plan.nodes)
        evidence = self._evidence(experiment, trial=trial, job=job, pod=pod)
        workload = await find_workload(job, self.clients)
        return self._evidence(
            experiment,
            trial=trial,
            job=job,
            pod=pod,
            workload=workload,
            position=await self._position(workload),
            nodes=await self._nodes(evidence),
            events=_in_order(await self._related_events(evidence)),
            log=await self._log(pod) if evidence.exit or (evidence.running and read) else "",
            collector_log=await self._collector_log(evidence),
        )

    async def _position(self, workload: Manifest | None) -> int | None:
        """Return the place in the ClusterQueue, with at most one request per reconcile."""
        if workload is None or self._asked_queue or self.sweep.phase is not Phase.PENDING:
            return None
        self._asked_queue, found = True, read_workload(workload)
        pending = await self.clients.trials.pending_workloads(self.namespace, found.queue)
        return places(pending or ()).get(found.name)

    def _evidence(self, experiment: Manifest, **known: object) -> TrialEvidence:
        return TrialEvidence(
            now=self.now,
            metric=self.plan.space.metric,
            source=self.plan.space.source,
            metrics_path=self.plan.space.metrics_path,
            gpus=self.plan.gpus,
            workers=self.plan.nodes,
            resource=self.plan.resource,
            experiment=experiment,
            **known,  # type: ignore[arg-type]
        )

    async def _related_events(self, evidence: TrialEvidence) -> Manifests:
        if evidence.trial and evidence.job is None:
            return await self._events("Trial", _name(evidence.trial))
        if evidence.job and evidence.pod is None:
            sources = creators_of_pods(self.plan.trial_kind, _name(evidence.job))
            return [event for source in sources for event in await self._events(*source)]
        unclear = evidence.status.get("phase") == "Pending" or evidence.abandoned or _unready(evidence)
        if evidence.pod is None or not unclear:
            return []
        found = await self._events("Pod", _name(evidence.pod))
        if evidence.unscheduled and "claim" in evidence.unscheduled.get("message", "").lower():
            for claim in _claims(evidence.pod):
                found += await self._events("PersistentVolumeClaim", claim)
        return found

    async def _events(self, kind: str, name: str) -> Manifests:
        return await list_events(kind, self.namespace, name, self.clients)

    async def _nodes(self, evidence: TrialEvidence) -> tuple[Manifest, ...]:
        needed = evidence.unscheduled or evidence.starting or _unready(evidence)
        return tuple(await list_if_allowed("Node", "", self.clients)) if needed else ()

    async def _log(self, pod: Manifest | None) -> str:
        if pod is None:
            return ""
        source = self.namespace, _name(pod), training_container(pod), TRIAL_LOG_LINES
        log = await self.clients.tail(*source)
        if not _restarted(pod):
            return log
        previous = await self.clients.tail(*source, previous=True)
        return f"{previous}\n{log}".strip()

    async def _collector_log(self, evidence: TrialEvidence) -> str:
        failed = (evidence.collector_exit or {}).get("exitCode") and not (evidence.exit or {}).get("exitCode")
        if evidence.pod is None or not failed:
            return ""
        names = (c["name"] for c in evidence.pod["spec"]["containers"])
        container = next((name for name in names if name in COLLECTORS), "")
        return await self.clients.tail(self.namespace, _name(evidence.pod), container) if container else ""


def _name(obj: Manifest) -> str:
    return str(obj["metadata"]["name"])


def _by_age(objects: Iterable[Manifest]) -> Manifests:
    return sorted(objects, key=lambda obj: (obj["metadata"].get("creationTimestamp", ""), _name(obj)))


def _latest(pods: Iterable[Manifest]) -> Manifest | None:
    """Return a live pod, else the newest. Creation times have seconds: a replacement can have the same."""
    return max(reversed(_by_age(pods)), key=still_live, default=None)


def _in_order(events: Manifests) -> tuple[Manifest, ...]:
    """Sort by time; those of one second stay in order of their names, which contain nanoseconds."""
    return tuple(sorted(events, key=lambda event: str(event_time(event))))


def _claims(pod: Manifest) -> list[str]:
    volumes = pod["spec"].get("volumes") or ()
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]


def _restarted(pod: Manifest) -> bool:
    """Return whether the log of the previous container is needed to see the cause."""
    statuses, name = pod.get("status", {}).get("containerStatuses") or (), training_container(pod)
    return any(each["name"] == name and each.get("restartCount") for each in statuses)


def _unready(evidence: TrialEvidence) -> bool:
    """Return whether a pod that ran is NotReady or being deleted: its node may have stopped responding."""
    ready = (c["status"] for c in evidence.status.get("conditions") or () if c["type"] == "Ready")
    deleting = "deletionTimestamp" in (evidence.pod or {}).get("metadata", {})
    return evidence.running and (deleting or next(ready, "True") != "True")
