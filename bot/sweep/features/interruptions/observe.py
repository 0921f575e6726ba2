"""Read which trials the cluster interrupted, and mark those that start again as live."""

from collections.abc import Iterable
from dataclasses import replace

from bot.core.plan import SweepPlan
from bot.core.record import ACTIVE, SweepRecord
from bot.platform.pod_health.cluster_events import list_workloads
from bot.sweep.clients import SweepClients
from bot.sweep.features.interruptions.causes import (
    collector_interruption,
    has_succeeded,
    is_disrupted,
    is_late,
    is_over_disk,
    job_interruption,
    pod_interruption,
    queue_interruption,
    worker_interruption,
)
from bot.sweep.features.interruptions.decide import (
    MAX_REPORTS_LOST,
    MAX_RESTARTS,
    names_of_suspended,
    with_disruptions,
)
from bot.sweep.features.interruptions.state import Interruption, InterruptionsSeen, InterruptionState
from bot.sweep.model.observation import Observation
from bot.sweep.model.progress import PULL_FAILURES
from k8s.jobs import Job
from k8s.objects import SWEEP_LABEL, read_once
from k8s.pods import Pod, read_trial_pods

MAX_PULL_ERROR = 1_000  # characters that the record keeps


async def observe(sweep: SweepRecord, seen: Observation, clients: SweepClients) -> Observation:
    """Add interruptions. Workloads are read only if the Job of a trial that ran is suspended again."""
    if sweep.plan is None:
        return seen
    if sweep.phase in ACTIVE:
        interruptions = await _interruptions(sweep, sweep.plan, seen, clients)
        masked = (replace(each, why=clients.mask(each.why)) for each in interruptions)
        unique = {each.trial: each for each in masked}
        pulls = {
            pod.job: clients.mask(pod.waiting[1])[:MAX_PULL_ERROR]
            for pod in seen.notable_pods
            if pod.waiting[0] in PULL_FAILURES
        }
        seen = seen.put(InterruptionsSeen(interruptions=tuple(unique.values()), pull_errors=pulls))
    return with_disruptions(sweep, seen)


async def _interruptions(
    sweep: SweepRecord, plan: SweepPlan, seen: Observation, clients: SweepClients
) -> list[Interruption]:
    ran = seen.live_names.intersection(sweep.of(InterruptionState).ran)
    names = ran & read_once(names_of_suspended, seen.jobs)
    stopped = [job for job in seen.active_jobs if job.name in names] if names else []
    suspended = await _of_suspended(stopped, plan.experiment_ref.namespace, clients)
    if plan.nodes == 1:  # its Job replaces a pod that is gone
        return [*suspended, *_of_pods(ran, seen), *of_collectors(sweep, plan, seen)]
    # A pod that only the watch has seen explains why its Job failed.
    gone = clients.trial_caches.disrupted(plan.experiment_ref.namespace, (SWEEP_LABEL, sweep.id))
    pods = (*seen.pods, *read_trial_pods(gone, seen.raw.jobs))
    return [*suspended, *of_workers(sweep, plan.nodes, seen, pods), *of_collectors(sweep, plan, seen)]


async def _of_suspended(jobs: list[Job], namespace: str, clients: SweepClients) -> list[Interruption]:
    own = await list_workloads(namespace, {job.uid for job in jobs}, clients)
    preemptors = await list_workloads(namespace, {w.preemptor for w in own} - {""}, clients)
    by_job = {w.job_uid: w for w in own[::-1]}
    by_uid = {w.job_uid: w for w in preemptors[::-1]}
    found = [(job, by_job.get(job.uid)) for job in jobs]
    return [queue_interruption(job.name, one, one and by_uid.get(one.preemptor)) for job, one in found]


def _of_pods(ran: frozenset[str], seen: Observation) -> list[Interruption]:
    """Return the trials whose pod is being disrupted, and that have no other running pod."""
    disrupted = [p for p in seen.notable_pods if p.disruption[0] and is_disrupted(p) and p.job in ran]
    left = {pod.job for pod in seen.pods if pod.running and not pod.deleted} if disrupted else ()
    return [pod_interruption(pod) for pod in disrupted if pod.job not in left]


def of_workers(sweep: SweepRecord, nodes: int, seen: Observation, pods: Iterable[Pod]) -> list[Interruption]:
    """Return the trials of several nodes of which the cluster stopped a worker, running or not.

    `pods`: those observed, and disrupted ones that are gone.
    """
    pods, jobs = tuple(pods), _jobs(sweep, seen)
    # The others are of no use after the first worker has succeeded, and its disk limit is a training's own.
    spared = {pod.job for pod in pods if has_succeeded(pod) or is_over_disk(pod)}
    new = [pod for pod in pods if pod.job_uid in jobs and pod.job not in spared]
    stopped = [pod for pod in new if is_disrupted(pod) and not is_late(pod, jobs[pod.job_uid].ended)]
    failed = [job for job in jobs.values() if job.disruption and job.name not in spared]
    return [job_interruption(job) for job in failed] + [
        worker_interruption(pod, nodes, queued=bool(jobs[pod.job_uid].queue)) for pod in stopped
    ]


def of_collectors(sweep: SweepRecord, plan: SweepPlan, seen: Observation) -> list[Interruption]:
    """Return the trials whose metrics are lost, unless they have started again too often."""
    unread = [pod for pod in seen.notable_pods if pod.unread]
    jobs, restarts = _jobs(sweep, seen) if unread else {}, [*sweep.of(InterruptionState).restarted.values()]
    most = MAX_REPORTS_LOST if plan.has_reader else MAX_RESTARTS
    return [
        collector_interruption(pod, queued=bool(jobs[pod.job_uid].queue))
        for pod in unread
        if pod.job_uid in jobs and restarts.count(pod.job) < most
    ]


def _jobs(sweep: SweepRecord, seen: Observation) -> dict[str, Job]:
    """Return the Jobs of this experiment's trials by UID, without those that are being replaced.

    A Job that is gone is none of them: a pod of a TrainJob has another UID then.
    """
    trials, known = seen.trial_names, sweep.of(InterruptionState).disrupted
    return {job.uid: job for job in seen.jobs if job.name in trials and job.uid not in known}
