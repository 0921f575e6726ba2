"""Collect the evidence from which first trials are diagnosed (objects, events, nodes, logs): of which trials,
how many lines, how often.

Events, logs, and nodes cost one call each, so a reconcile examines a few live trials, and each failed
one once.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.platform.clients import Clients
from bot.platform.pod_health.cluster_events import (
    find_workload,
    list_events,
    nodes_if_allowed,
    rejected_replicas,
)
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.pod_health.evidence import TrialEvidence, created_at, event_time
from bot.platform.pod_health.rules_scheduling import about_claims
from bot.platform.pod_health.rules_startup import DEAD_NODE
from bot.sweep.features.health.rules import diagnose, due, next_due
from bot.sweep.features.health.state import HealthState, HealthStatus
from bot.sweep.features.health.workers import explaining
from bot.sweep.model import engine
from bot.sweep.model.observation import Observation, RawObjects
from k8s.api.client import Manifests
from k8s.engine import Experiment, Trial, TrialState
from k8s.kueue import pending_workloads, places, read_workload
from k8s.objects import Manifest, read_once, still_live
from k8s.pods import READER, is_trial_pod
from k8s.trial_kinds import creators_of_pods, job_of_pod, training_container

MAX_LIVE = 3  # live trials examined per reconcile
MAX_EXAMINED = 20  # failed trials examined per sweep; more are only counted
TRIAL_LOG_LINES = 400  # with several processes, the cause can be far above the last line
POLL_INTERVAL = timedelta(seconds=10)  # events and logs are not watched
POLL_DURATION = timedelta(minutes=15)  # of a running sweep, until its first success


async def observe(sweep: SweepRecord, seen: Observation, clients: Clients) -> Observation:
    """Add the diagnoses, with secrets masked: they quote pods, events, webhooks, and logs."""
    if sweep.plan is None or seen.raw.experiment is None:
        return seen
    evidence = EvidenceCollector(sweep, sweep.plan, clients)
    await evidence.run(seen.raw.experiment, seen.raw.trials, [*seen.raw.jobs], [*seen.raw.pods])
    trouble = tuple(each.masked(clients.mask) for each in due(evidence.found, evidence.now))
    seen = replace(seen, trouble=trouble)
    return seen.again_in(evidence.requeue_after) if evidence.requeue_after else seen


async def examine(
    sweep: SweepRecord, plan: SweepPlan, raw: RawObjects, clients: Clients
) -> tuple[Diagnosis, ...]:
    """Return all diagnoses, also those that are too young for the sweep's thread."""
    evidence = EvidenceCollector(sweep, plan, clients)
    if raw.experiment:
        await evidence.run(raw.experiment, raw.trials, [*raw.jobs], [*raw.pods])
    return tuple(evidence.found)


class EvidenceCollector:
    def __init__(self, sweep: SweepRecord, plan: SweepPlan, clients: Clients) -> None:
        self.sweep, self.plan, self.clients = sweep, plan, clients
        self.namespace, self.now = plan.experiment_ref.namespace, clients.now()
        self.found: list[Diagnosis] = []
        self._asked_queue = False

    async def run(
        self, experiment: Experiment, trials: tuple[Trial, ...], jobs: Manifests, pods: Manifests
    ) -> None:
        if self.sweep.phase not in {Phase.PENDING, Phase.RUNNING}:
            return
        if not trials:
            await self._note(await self._without_trials(experiment, pods))
        logs = 1
        for trial in self._suspects(trials):
            evidence = await self._examine(experiment, trial, jobs, pods, read=logs > 0)
            logs -= evidence.running
            await self._note(evidence)

    @property
    def requeue_after(self) -> timedelta | None:
        """Time until the next reconcile; None if nothing is urgent."""
        first = self.sweep.phase is Phase.RUNNING and not self.sweep.progress.succeeded
        soon = first and self.now - self.sweep.since < POLL_DURATION
        poll = POLL_INTERVAL if soon or self.sweep.phase is Phase.PENDING else None
        at = next_due(self.found, self.now)
        return min((wait for wait in (poll, at and at - self.now) if wait), default=None)

    async def _note(self, evidence: TrialEvidence) -> None:
        if found := await asyncio.to_thread(diagnose, evidence):  # a hostile log takes a second
            self.found.append(found)

    def _suspects(self, trials: tuple[Trial, ...]) -> list[Trial]:
        sweep = self.sweep
        known, by_state = {*sweep.of(HealthState).examined, *sweep.to_kill}, read_once(_by_state, trials)
        unhealthy, live = self._unhealthy, by_state.get("live", [])
        if sweep.progress.succeeded:  # only what the message about the first trials shows is followed
            live = [t for t in live if t.name == unhealthy] if unhealthy else []
        live, failed, nan = (
            [t for t in found if t.name not in known]
            for found in (live, by_state.get("failed", ()), by_state.get("nan", ()))
        )
        new = (failed + nan)[: 1 if len(sweep.of(HealthState).examined) < MAX_EXAMINED else 0]
        return new + sorted(live, key=lambda t: t.name != unhealthy)[:MAX_LIVE]

    @property
    def _unhealthy(self) -> str:
        """Return the trial whose problem is shown; "" if there is none."""
        shown = self.sweep.of(HealthState).shown
        return shown.trial if shown and shown.status is HealthStatus.UNHEALTHY else ""

    async def _without_trials(self, experiment: Experiment, pods: Manifests) -> TrialEvidence:
        search = await engine.find_search(self.plan, self.clients.trials)
        refs = self.plan.experiment_ref, engine.search_ref(self.plan)
        events = [event for ref in refs for event in await self._events(ref.kind, ref.name)]
        services = tuple(pod for pod in pods if not is_trial_pod(pod))
        if not services:  # a quota or a policy can reject them
            above = f"{self.plan.experiment_ref.name}-{self.plan.space.algorithm}"
            events += await rejected_replicas(self.namespace, above, self.clients)
        return self._evidence(experiment, search=search, services=services, events=_in_order(events))

    async def _examine(
        self, experiment: Experiment, trial: Trial, jobs: Manifests, pods: Manifests, *, read: bool
    ) -> TrialEvidence:
        name = trial.name
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
            collector_log=await self._collector_log(evidence, read=read),
        )

    async def _position(self, workload: Manifest | None) -> int | None:
        """Return the place in the ClusterQueue, with at most one request per reconcile."""
        if workload is None or self._asked_queue or self.sweep.phase is not Phase.PENDING:
            return None
        self._asked_queue, found = True, read_workload(workload)
        pending = await pending_workloads(self.clients.trials, self.namespace, found.queue)
        return places(pending or ()).get(found.name)

    def _evidence(self, experiment: Experiment, **known: object) -> TrialEvidence:
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
            return await self._events(engine.TRIAL, evidence.trial.name, evidence.trial.created)
        if evidence.job and evidence.pod is None:
            sources = creators_of_pods(self.plan.trial_kind, _name(evidence.job))
            return [
                event for source in sources for event in await self._events(*source, created_at(evidence.job))
            ]
        unclear = evidence.status.get("phase") == "Pending" or evidence.abandoned or _unready(evidence)
        if evidence.pod is None or not unclear:
            return []
        found = await self._events("Pod", _name(evidence.pod), created_at(evidence.pod))
        if evidence.unscheduled and about_claims(evidence.unscheduled):
            for volume in evidence.pod["spec"].get("volumes") or ():
                if claim := volume.get("persistentVolumeClaim"):
                    found += await self._events("PersistentVolumeClaim", claim["claimName"])
        return found

    async def _events(self, kind: str, name: str, begin: datetime | None = None) -> Manifests:
        """Return the events since the object's creation: an earlier one could have had its name."""
        events = await list_events(kind, self.namespace, name, self.clients)
        return [each for each in events if not begin or (event_time(each) or begin) >= begin]

    async def _nodes(self, evidence: TrialEvidence) -> tuple[Manifest, ...]:
        # A pod is Ready again before its node is.
        health = self.sweep.of(HealthState).shown
        is_lost = health is not None and health.key == DEAD_NODE
        lost = is_lost and evidence.trial is not None and evidence.trial.name == self._unhealthy
        needed = evidence.unscheduled or evidence.starting or _unready(evidence) or lost
        return tuple(await nodes_if_allowed(self.clients)) if needed else ()

    async def _log(self, pod: Manifest | None) -> str:
        if pod is None:
            return ""
        name, statuses = training_container(pod), pod.get("status", {}).get("containerStatuses") or ()
        source = self.namespace, _name(pod), name, TRIAL_LOG_LINES
        log = await self.clients.tail(*source)
        if not any(each["name"] == name and each.get("restartCount") for each in statuses):
            return log
        previous = await self.clients.tail(*source, previous=True)
        return f"{previous}\n{log}".strip()

    async def _collector_log(self, evidence: TrialEvidence, *, read: bool) -> str:
        unmeasured = evidence.trial is not None and evidence.trial.state is TrialState.NO_METRICS
        follows = ((read and evidence.running) or unmeasured) and evidence.collector == READER
        failed = (evidence.collector_exit or {}).get("exitCode") and not (evidence.exit or {}).get("exitCode")
        if evidence.pod is None or not (failed or follows):
            return ""
        container = evidence.collector
        return await self.clients.tail(self.namespace, _name(evidence.pod), container) if container else ""


def _by_state(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """Return the trials by `_state`, the oldest first."""
    found = defaultdict[str, list[Trial]](list)
    for trial in sorted(trials, key=lambda t: (str(t.created or ""), t.name)):
        found[_state(trial)].append(trial)
    return found


def _state(trial: Trial) -> str:
    """Return "live", "failed", "ended", or "nan": Katib counts a NaN or infinite value as succeeded."""
    if trial.state is TrialState.LIVE:
        return "live"
    if trial.failed:
        return "failed"
    return "nan" if trial.state is TrialState.SUCCEEDED and trial.not_finite else "ended"


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


def _unready(evidence: TrialEvidence) -> bool:
    """Return whether a pod that ran is NotReady or being deleted: its node may have stopped responding."""
    ready = (c["status"] for c in evidence.status.get("conditions") or () if c["type"] == "Ready")
    deleting = "deletionTimestamp" in (evidence.pod or {}).get("metadata", {})
    return evidence.running and (deleting or next(ready, "True") != "True")
