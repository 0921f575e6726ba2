"""Apply what users change about the queue of a sweep's trials: labels of waiting Jobs, priorities of
Workloads, and which are active. Pure.

New trials get their labels from the experiment's template, which can't be edited. So a change is kept in the
record, and applied to each waiting Job by its labels. An admitted Job keeps its queue, and its Workload gets
the priority. From Kueue 0.15 on, so does its label, else each start of Kueue sets the Workload's priority to
that of the class; an older one rejects that label, and leaves the priority. A sweep must not preempt its own
running trials, so a raise reaches them before the waiting ones, and a lower priority after those.

Kueue copies the labels to the Workload only while the Job is suspended, also if they change at that moment.
So the Workload's own priority counts, never the label: once it was changed, each admitted Job is compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar

from bot.core.feature_state import FeatureState
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.sweep.model.changes import Patch, RequiredChanges
from bot.sweep.model.observation import Observation
from k8s.kueue import PRIORITY_LABEL, Workload, activated, prioritized, relabeled
from k8s.objects import Ref


@dataclass(frozen=True, kw_only=True)
class QueueState(FeatureState):
    """The plan has the queue and the priority of new trials."""

    name: ClassVar[str] = "queue"

    labels: dict[str, str] = field(default_factory=dict)  # of waiting trials' Jobs, if not as planned
    value: int = 0  # of the changed priority's class
    lifted: tuple[str, ...] = ()  # UIDs of the admitted Jobs whose Workloads have that value
    held_by: str = ""  # Slack user id of who keeps waiting trials out of the queue
    parked: tuple[str, ...] = ()  # UIDs of the Jobs whose Workloads Sweepbot made inactive


@dataclass(frozen=True, kw_only=True)
class QueueSeen:
    workloads: tuple[Workload, ...] = ()  # of the Jobs that a change concerns
    looked_up: frozenset[str] = frozenset()  # UIDs of these Jobs, also without a Workload
    priority_values: Mapping[str, int] = field(default_factory=dict)  # by class, if a command needs them


def follow(sweep: SweepRecord, seen: Observation, _: datetime) -> SweepRecord:
    """Remember which Jobs a change has reached. What held trials lack otherwise isn't shown."""
    state = sweep.of(QueueState)
    progress = replace(sweep.progress, waits_for="") if state.held_by else sweep.progress
    state = replace(state, parked=_parked(sweep, seen), lifted=_lifted(sweep, seen))
    return sweep.put(state, progress=progress)


def to_park(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the UIDs of waiting Jobs that a hold still has to take out of the queue."""
    state = sweep.of(QueueState)
    if not state.held_by:
        return set()
    return {j.uid for j in seen.active_jobs if j.queue and j.name not in seen.running} - {*state.parked}


def to_unpark(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the UIDs of Jobs that a release still has to put back."""
    state = sweep.of(QueueState)
    return set() if state.held_by else _active(state.parked, seen)


def _active(uids: tuple[str, ...], seen: Observation) -> set[str]:
    """Return those of these Jobs that are active."""
    return {j.uid for j in seen.active_jobs} & {*uids} if uids else set()


def to_lift(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the UIDs of admitted Jobs whose Workloads aren't known to have the changed priority."""
    state = sweep.of(QueueState)
    return _admitted(seen) - {*state.lifted} if PRIORITY_LABEL in state.labels else set()


def _admitted(seen: Observation) -> set[str]:
    return {job.uid for job in seen.active_jobs if job.queue and not job.suspended}


def changing(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the UIDs of the Jobs whose Workloads a change concerns."""
    return to_park(sweep, seen) | to_unpark(sweep, seen) | to_lift(sweep, seen)


def changes(sweep: SweepRecord, plan: SweepPlan, seen: Observation, _: datetime) -> RequiredChanges:
    """Patch waiting Jobs' labels, and Workloads that change their priority, or leave or enter the queue.

    Kueue can admit a Job after it was read, and then rejects the patch: the next reconcile sees that.
    """
    state, own, namespace = sweep.of(QueueState), seen.of(QueueSeen), plan.experiment_ref.namespace
    park, unpark, lift = to_park(sweep, seen), to_unpark(sweep, seen), to_lift(sweep, seen)
    unequal = [w for w in own.workloads if w.job_uid in lift and w.priority != state.value]
    waiting = [
        (Ref(job.kind, namespace, job.name), relabeled(state.labels))
        for job in (seen.active_jobs if state.labels else ())
        if job.suspended and job.queue and not state.labels.items() <= job.kueue_labels.items()
    ]
    first = [w for w in unequal if w.priority < state.value or not waiting]
    priority = {label: value for label, value in state.labels.items() if label == PRIORITY_LABEL}
    uids = {w.job_uid for w in first}
    patches = [
        (Ref(job.kind, namespace, job.name), relabeled(priority))
        for job in (seen.active_jobs if uids else ())
        if job.uid in uids and not priority.items() <= job.kueue_labels.items()
    ]
    patches += [(Ref("Workload", namespace, w.name), prioritized(state.value)) for w in first]
    patches += waiting if lift <= own.looked_up else []
    patches += [
        (Ref("Workload", namespace, each.name), activated(active=not each.active))
        for each in own.workloads
        if each.job_uid in (park if each.active else unpark)
    ]
    return RequiredChanges(patch=tuple(Patch(ref=ref, body=body, optional=True) for ref, body in patches))


def _lifted(sweep: SweepRecord, seen: Observation) -> tuple[str, ...]:
    """Return the Jobs that have the changed priority; one without a Workload needs none."""
    state, own = sweep.of(QueueState), seen.of(QueueSeen)
    waiting = {w.job_uid for w in own.workloads if w.priority != state.value}
    done = (to_lift(sweep, seen) & own.looked_up) - waiting
    return tuple(sorted(({*state.lifted} & _admitted(seen) if state.lifted else set()) | done))


def _parked(sweep: SweepRecord, seen: Observation) -> tuple[str, ...]:
    """Return the Jobs that are out of the queue, by what their Workloads show."""
    workloads, parked = seen.of(QueueSeen).workloads, _active(sweep.of(QueueState).parked, seen)
    now_parked = {w.job_uid for w in workloads if not w.active} & to_park(sweep, seen)
    back = {w.job_uid for w in workloads if w.active} & to_unpark(sweep, seen)
    return tuple(sorted((parked | now_parked) - back))


def requeue(before: SweepRecord, after: SweepRecord, _: datetime) -> timedelta | None:
    """Reconcile at once after a change: the Workloads that it concerns aren't observed yet."""
    return timedelta(0) if _wanted(before) != _wanted(after) else None


def _wanted(sweep: SweepRecord) -> tuple[dict[str, str], int, str]:
    state = sweep.of(QueueState)
    return state.labels, state.value, state.held_by
