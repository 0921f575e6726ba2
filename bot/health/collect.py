"""Ask what the diagnosis of the first trials needs: only about trials that may be in trouble.

Events, logs and nodes cost a call each, so no turn looks at more than a few trials, and at a failed one once.
"""

from collections.abc import Iterable
from datetime import timedelta

from bot.clients import Clients
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.health.cluster_events import events_of, if_allowed, workload_of
from bot.health.diagnosis import Diagnosis
from bot.health.evidence import TrialEvidence, said_at
from bot.health.rules import diagnose, due, next_due
from bot.health.rules_training import not_finite
from k8s.client import Manifests
from k8s.katib.spec import MAIN
from k8s.objects import Manifest, Ref, still_live, true_conditions
from k8s.pods import COLLECTORS, JOB_LABEL, is_trial_pod

AT_ONCE = 3  # live trials that a turn looks at
EXAMINED = 20  # failed trials that are looked into; more are only counted
LOG = 200  # lines: the cause may stand far above the last words of a training of several processes
OFTEN = timedelta(seconds=10)  # events and logs are not watched
FIRST_MINUTES = timedelta(minutes=15)  # in which a running trial's log is read again and again
WELL = {"Succeeded", "Killed", "EarlyStopped"}
BAD = {"Failed", "MetricsUnavailable"}


class EvidenceCollector:
    def __init__(self, sweep: SweepRecord, plan: SweepPlan, clients: Clients) -> None:
        self.sweep, self.plan, self.clients = sweep, plan, clients
        self.namespace, self.now = plan.experiment_ref.namespace, clients.now()
        self.found: list[Diagnosis] = []

    async def run(self, experiment: Manifest, trials: Manifests, jobs: Manifests, pods: Manifests) -> None:
        if self.sweep.phase not in {Phase.PENDING, Phase.RUNNING}:
            return
        if not trials:
            self._note(await self._without_trials(experiment, pods))
        logs = 1
        for trial in self._suspects(trials):
            evidence = await self._scene(experiment, trial, jobs, pods, read=logs > 0)
            logs -= evidence.running
            self._note(evidence)

    @property
    def trouble(self) -> tuple[Diagnosis, ...]:
        return due(self.found, self.now)

    @property
    def look_in(self) -> timedelta | None:
        """When to look again; None when nothing asks for haste."""
        at = next_due(self.found, self.now)
        waits = [self._regularly(), at - self.now if at else None]
        return min((wait for wait in waits if wait), default=None)

    def _regularly(self) -> timedelta | None:
        first = self.sweep.phase is Phase.RUNNING and not self.sweep.progress.succeeded
        soon = first and self.now - self.sweep.since < FIRST_MINUTES
        return OFTEN if soon or self.sweep.phase is Phase.PENDING else None

    def _note(self, evidence: TrialEvidence) -> None:
        if found := diagnose(evidence):
            self.found.append(found)

    def _suspects(self, trials: Manifests) -> Manifests:
        sweep = self.sweep
        rest = [t for t in _by_age(trials) if _name(t) not in {*sweep.examined, *sweep.to_kill}]
        live = [t for t in rest if not (WELL | BAD) & true_conditions(t).keys()]
        failed = [t for t in rest if BAD & true_conditions(t).keys()]
        # A trial whose metric is NaN or infinite counts as a success for Katib.
        metric = self.plan.space.metric
        nan = [t for t in rest if "Succeeded" in true_conditions(t) and not_finite(t, metric)]
        new = (failed + nan)[: 1 if len(sweep.examined) < EXAMINED else 0]
        return new if sweep.progress.succeeded else new + live[:AT_ONCE]

    async def _without_trials(self, experiment: Manifest, pods: Manifests) -> TrialEvidence:
        ref = self.plan.experiment_ref
        suggestion = await self.clients.cluster.get(Ref("Suggestion", ref.namespace, ref.name))
        events = [*await self._events("Experiment", ref.name), *await self._events("Suggestion", ref.name)]
        services = tuple(pod for pod in pods if not is_trial_pod(pod))
        return self._a_scene(experiment, suggestion=suggestion, services=services, events=_in_order(events))

    async def _scene(
        self, experiment: Manifest, trial: Manifest, jobs: Manifests, pods: Manifests, *, read: bool
    ) -> TrialEvidence:
        name = _name(trial)
        job = next((j for j in jobs if _name(j) == name), None)
        pod = _latest(p for p in pods if p["metadata"]["labels"].get(JOB_LABEL) == name)
        evidence = self._a_scene(experiment, trial=trial, job=job, pod=pod)
        return self._a_scene(
            experiment,
            trial=trial,
            job=job,
            pod=pod,
            workload=await workload_of(job, self.clients),
            nodes=await self._nodes(evidence),
            events=_in_order(await self._events_of(evidence)),
            log=await self._log(pod) if evidence.exit or (evidence.running and read) else "",
            collector_log=await self._collector_log(evidence),
        )

    def _a_scene(self, experiment: Manifest, **known: object) -> TrialEvidence:
        return TrialEvidence(
            now=self.now,
            metric=self.plan.space.metric,
            gpus=self.plan.gpus,
            experiment=experiment,
            **known,  # type: ignore[arg-type]
        )

    async def _events_of(self, evidence: TrialEvidence) -> Manifests:
        if evidence.trial and evidence.job is None:
            return await self._events("Trial", _name(evidence.trial))
        if evidence.job and evidence.pod is None:
            return await self._events("Job", _name(evidence.job))
        commands = evidence.status.get("phase") == "Pending" or evidence.abandoned or _unready(evidence)
        if evidence.pod is None or not commands:
            return []
        found = await self._events("Pod", _name(evidence.pod))
        if evidence.unscheduled and "claim" in evidence.unscheduled.get("message", "").lower():
            for claim in _claims(evidence.pod):
                found += await self._events("PersistentVolumeClaim", claim)
        return found

    async def _events(self, kind: str, name: str) -> Manifests:
        return await events_of(kind, self.namespace, name, self.clients)

    async def _nodes(self, evidence: TrialEvidence) -> tuple[Manifest, ...]:
        asked = evidence.unscheduled or evidence.being_made or _unready(evidence)
        return tuple(await if_allowed("Node", "", self.clients)) if asked else ()

    async def _log(self, pod: Manifest | None) -> str:
        if pod is None:
            return ""
        log = await self.clients.tail(self.namespace, _name(pod), MAIN, LOG)
        if not _restarted(pod):
            return log
        before = await self.clients.tail(self.namespace, _name(pod), MAIN, LOG, previous=True)
        return f"{before}\n{log}".strip()

    async def _collector_log(self, evidence: TrialEvidence) -> str:
        over = (evidence.collector_exit or {}).get("exitCode") and not (evidence.exit or {}).get("exitCode")
        if evidence.pod is None or not over:
            return ""
        names = (c["name"] for c in evidence.pod["spec"]["containers"])
        container = next((name for name in names if name in COLLECTORS), "")
        return await self.clients.tail(self.namespace, _name(evidence.pod), container) if container else ""


def _name(obj: Manifest) -> str:
    return str(obj["metadata"]["name"])


def _by_age(objects: Iterable[Manifest]) -> Manifests:
    return sorted(objects, key=lambda obj: (obj["metadata"].get("creationTimestamp", ""), _name(obj)))


def _latest(pods: Iterable[Manifest]) -> Manifest | None:
    """One that lives, or the last that did: made anew in the same second, it looks no younger."""
    return max(reversed(_by_age(pods)), key=still_live, default=None)


def _in_order(events: Manifests) -> tuple[Manifest, ...]:
    """Those of one second stay as they come: by name, which has the nanosecond of the first time."""
    return tuple(sorted(events, key=lambda event: str(said_at(event))))


def _claims(pod: Manifest) -> list[str]:
    volumes = pod["spec"].get("volumes") or ()
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]


def _restarted(pod: Manifest) -> bool:
    """Then the cause stands in the log of the container before this one."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return any(each["name"] == MAIN and each.get("restartCount") for each in statuses)


def _unready(evidence: TrialEvidence) -> bool:
    """It ran, and its node is no longer heard of: the node's controller then says that it is not ready."""
    ready = (c["status"] for c in evidence.status.get("conditions") or () if c["type"] == "Ready")
    deleting = "deletionTimestamp" in (evidence.pod or {}).get("metadata", {})
    return evidence.running and (deleting or next(ready, "True") != "True")
