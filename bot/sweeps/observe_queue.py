"""Read Kueue's Workloads where a sweep needs them: after an interruption, and for a hold or a release."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from bot.clients import Clients
from bot.core.commands import Action
from bot.core.plan import SweepPlan
from bot.core.queueing import Interruption
from bot.core.record import Phase, SweepRecord
from bot.health.cluster_events import list_if_allowed
from bot.health.interruptions import (
    has_succeeded,
    is_disrupted,
    is_late,
    is_over_disk,
    job_interruption,
    pod_interruption,
    queue_interruption,
    worker_interruption,
)
from bot.lifecycle.observation import Observation
from bot.lifecycle.queueing import changing
from k8s.jobs import Job
from k8s.kueue import JOB_UID_LABEL, Workload, read_workload

AGAIN = timedelta(seconds=5)  # until Workloads that Sweepbot changed are read again; they aren't watched


async def observe_queue(sweep: SweepRecord, seen: Observation, clients: Clients) -> Observation:
    """Add Workloads and interruptions. Nothing is read unless a trial was interrupted or a hold changes."""
    seen = replace(seen, priority_values=await _priority_values(seen, clients))
    if sweep.plan is None or sweep.phase not in {Phase.PENDING, Phase.RUNNING}:
        return seen
    ran = {*sweep.queueing.ran} & {t.name for t in seen.live}
    stopped = [job for job in seen.active_jobs if job.suspended and job.name in ran]
    concerned, namespace = changing(sweep, seen), sweep.plan.experiment_ref.namespace
    uids = {job.uid for job in stopped} | concerned
    found = await _workloads(namespace, uids, clients)
    preemptors = await _workloads(namespace, {w.preemptor for w in found} - {""}, clients)
    interruptions = [_of_job(job, found, preemptors) for job in stopped]
    interruptions += _of_pods(ran, seen) if sweep.plan.nodes == 1 else _of_workers(sweep, sweep.plan, seen)
    soon = min(AGAIN, seen.observe_again_in or AGAIN) if concerned else seen.observe_again_in
    unique = {each.trial: each for each in interruptions}
    return replace(
        seen,
        workloads=tuple(found),
        looked_up=frozenset(uids),
        interruptions=tuple(unique.values()),
        observe_again_in=soon,
    )


def _of_workers(sweep: SweepRecord, plan: SweepPlan, seen: Observation) -> list[Interruption]:
    """Return the trials of several nodes of which the cluster stopped a worker, running or not."""
    known, all_pods = sweep.queueing.disrupted, (*seen.pods, *seen.gone)
    # Not those of an earlier experiment, and no Job that is gone: a pod of a TrainJob has another UID then.
    trials = {trial.name for trial in seen.trials}
    jobs = {job.uid: job for job in seen.jobs if job.name in trials and job.uid not in known}
    # The others are of no use after the first worker has succeeded, and its disk limit is a training's own.
    spared = {pod.job for pod in all_pods if has_succeeded(pod) or is_over_disk(pod)}
    new = [pod for pod in all_pods if pod.job_uid in jobs and pod.job not in spared]
    pods = [pod for pod in new if is_disrupted(pod) and not is_late(pod, jobs[pod.job_uid].ended)]
    failed = [job for job in jobs.values() if job.disruption and job.name not in spared]
    return [job_interruption(job) for job in failed] + [
        worker_interruption(pod, plan.nodes, queued=bool(jobs[pod.job_uid].queue)) for pod in pods
    ]


async def _priority_values(seen: Observation, clients: Clients) -> dict[str, int]:
    """Return the value of each WorkloadPriorityClass, if a command needs them."""
    if not any(command.action in {Action.RAISE, Action.LOWER} for command in seen.commands):
        return {}
    found = await list_if_allowed("WorkloadPriorityClass", "", clients)
    return {each["metadata"]["name"]: int(each["value"]) for each in found}


async def _workloads(namespace: str, uids: Iterable[str], clients: Clients) -> list[Workload]:
    if not (wanted := sorted(uids)):
        return []
    labels = f"{JOB_UID_LABEL} in ({','.join(wanted)})"
    return [read_workload(w) for w in await list_if_allowed("Workload", namespace, clients, labels)]


def _of_job(job: Job, found: list[Workload], preemptors: list[Workload]) -> Interruption:
    own = next((w for w in found if w.job_uid == job.uid), None)
    by = next((w for w in preemptors if own and w.job_uid == own.preemptor), None)
    return queue_interruption(job.name, own, by)


def _of_pods(ran: set[str], seen: Observation) -> list[Interruption]:
    """Return the trials whose pod is being disrupted, and that have no other running pod."""
    left = {pod.job for pod in seen.pods if pod.running and not pod.deleted}
    return [pod_interruption(pod) for pod in seen.pods if is_disrupted(pod) and pod.job in ran - left]
