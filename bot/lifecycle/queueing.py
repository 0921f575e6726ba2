"""Follow the queue of a sweep's trials: interruptions, and what users change. Pure.

New trials get their labels from the experiment's template, which can't be edited. So a change is kept in the
record, and applied to each waiting Job by its labels. The labels of an admitted Job are immutable: it keeps
its queue, and its Workload gets the priority before any waiting trial does. Otherwise a sweep that is raised
would preempt its own running trials.
"""

from dataclasses import replace
from datetime import datetime

from bot.config.permissions import queue_member
from bot.config.policy import Config
from bot.config.queues import priority_denial, queue_denial
from bot.core.commands import Action, Command
from bot.core.events import Event, EventKind
from bot.core.record import Phase, SweepRecord
from bot.lifecycle.disruptions import disrupted_jobs, disrupted_of
from bot.lifecycle.observation import Observation
from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL, activated, job_labels, prioritized, relabeled
from k8s.objects import Manifest, Ref

QUEUE_ACTIONS = {Action.RAISE, Action.LOWER, Action.MOVE, Action.HOLD, Action.UNHOLD}
STEP = {Action.RAISE: 1, Action.LOWER: -1}
ENDING = {Phase.STOPPING, Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.REFUSED}


def follow_queue(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Report trials that the cluster interrupted, and those that run again; each once."""
    state, live, running = sweep.queueing, {t.name for t in seen.live}, _running(sweep, seen)
    replaced = disrupted_jobs(sweep, seen)
    restarts = [each for each in seen.interruptions if not each.job_uid or each.job_uid in replaced]
    new = [each for each in restarts if each.trial in live - state.interrupted.keys()]
    again = {t: at for t, at in state.interrupted.items() if t in running}
    gone = {each.trial for each in new}
    disrupted = disrupted_of(sweep, seen)
    absent = {*disrupted.values()} - {t.name for t in seen.trials}  # until Katib creates them again
    left = {t: at for t, at in state.interrupted.items() if t in live | absent and t not in again}
    events = [
        *(Event(kind=EventKind.INTERRUPTED, trial=e.trial, text=e.why, queued=e.queued) for e in new),
        *(
            Event(kind=EventKind.RUNS_AGAIN, trial=trial, seconds=(now - at).total_seconds())
            for trial, at in again.items()
        ),
    ]
    ran = sorted((({*state.ran} | running) & live) - gone)
    interrupted = left | dict.fromkeys(sorted(gone), now)
    state = replace(state, ran=tuple(ran), interrupted=interrupted, disrupted=disrupted)
    state = replace(state, parked=_parked(sweep, seen), lifted=_lifted(sweep, seen))
    return sweep.enqueue(*events, queueing=state)


def _running(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the trials that run, on all of their nodes, and aren't being stopped."""
    replaced = disrupted_jobs(sweep, seen)
    suspended = {job.name for job in seen.jobs if job.suspended or job.uid in replaced} | seen.incomplete
    up = {pod.job for pod in seen.pods if pod.running and not pod.deleted and not pod.disruption[0]}
    return up - suspended


def to_park(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the UIDs of waiting Jobs that a hold still has to take out of the queue."""
    if not sweep.queueing.held_by:
        return set()
    return {j.uid for j in seen.active_jobs if j.queue and j.name not in seen.running} - {
        *sweep.queueing.parked
    }


def to_unpark(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the UIDs of Jobs that a release still has to put back."""
    if sweep.queueing.held_by:
        return set()
    return {j.uid for j in seen.active_jobs} & {*sweep.queueing.parked}


def to_lift(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the UIDs of admitted Jobs whose Workloads still need the changed priority."""
    wanted = sweep.queueing.labels.get(PRIORITY_LABEL)
    running = (j for j in seen.active_jobs if wanted and j.queue and not j.suspended)
    return {j.uid for j in running if j.kueue_labels.get(PRIORITY_LABEL) != wanted} - {*sweep.queueing.lifted}


def changing(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the UIDs of the Jobs whose Workloads a change concerns."""
    return to_park(sweep, seen) | to_unpark(sweep, seen) | to_lift(sweep, seen)


def queue_patches(sweep: SweepRecord, seen: Observation, namespace: str) -> list[tuple[Ref, Manifest]]:
    """Return the patches of waiting Jobs' labels, and of Workloads that leave or enter the queue."""
    wanted, park, unpark = sweep.queueing.labels, to_park(sweep, seen), to_unpark(sweep, seen)
    value, lift = sweep.queueing.value, to_lift(sweep, seen)
    lifts = [w for w in seen.workloads if w.job_uid in lift and w.priority != value]
    patches = [(Ref("Workload", namespace, w.name), prioritized(value)) for w in lifts]
    patches += [
        (Ref(job.kind, namespace, job.name), relabeled(wanted))
        for job in seen.active_jobs
        if not lift and job.suspended and job.queue and not wanted.items() <= job.kueue_labels.items()
    ]
    return patches + [
        (Ref("Workload", namespace, each.name), activated(active=not each.active))
        for each in seen.workloads
        if each.job_uid in (park if each.active else unpark)
    ]


def _lifted(sweep: SweepRecord, seen: Observation) -> tuple[str, ...]:
    """Return the Jobs that have the changed priority; one without a Workload needs none."""
    waiting = {w.job_uid for w in seen.workloads if w.priority != sweep.queueing.value}
    done = (to_lift(sweep, seen) & seen.looked_up) - waiting
    return tuple(sorted(({*sweep.queueing.lifted} & {j.uid for j in seen.active_jobs}) | done))


def _parked(sweep: SweepRecord, seen: Observation) -> tuple[str, ...]:
    """Return the Jobs that are out of the queue, by what their Workloads show."""
    live = {j.uid for j in seen.active_jobs}
    now_parked = {w.job_uid for w in seen.workloads if not w.active} & to_park(sweep, seen)
    back = {w.job_uid for w in seen.workloads if w.active} & to_unpark(sweep, seen)
    return tuple(sorted((({*sweep.queueing.parked} & live) | now_parked) - back))


def queue_change_denial(sweep: SweepRecord, command: Command, seen: Observation, config: Config) -> str:
    """Return why the queue of this sweep can't change so; "" if it can."""
    policy, who = config.queueing, queue_member(command.user, config)
    queue, priority = sweep.queue_and_priority
    if sweep.phase in ENDING:
        return f"`{sweep.id}` is stopping or has ended."
    if not queue:
        return (
            f"`{sweep.id}` isn't in a Kueue queue, so its place can't change. *Fix:* Start it again with "
            "queue= or priority=."
        )
    if command.action is Action.HOLD:
        return f"`{sweep.id}` is already held." if sweep.queueing.held_by else ""
    if command.action is Action.UNHOLD:
        return "" if sweep.queueing.held_by else f"`{sweep.id}` isn't held in its queue."
    if command.action is Action.MOVE:
        same = f"`{sweep.id}` is already in queue `{queue}`." if command.queue == queue else ""
        return same or queue_denial(command.queue, who, policy)
    wanted = _next(priority, command.action, config)
    if not wanted:
        most = "highest" if command.action is Action.RAISE else "lowest"
        return (
            f"`{sweep.id}` already has the {most} configured priority{f': {priority}' if priority else ''}."
        )
    class_name = policy.priority_class(wanted)
    unknown = (
        f"Sweepbot can't read the WorkloadPriorityClass `{class_name}`. *Fix:* Ask an admin to create it, "
        "and to run `kubectl apply -f deploy/queues/rights.yaml`."
    )
    return priority_denial(wanted, who, policy) or ("" if class_name in seen.priority_values else unknown)


def changed_queue(sweep: SweepRecord, command: Command, seen: Observation, config: Config) -> SweepRecord:
    """Apply a command that `queue_change_denial` allows."""
    state, (_, priority) = sweep.queueing, sweep.queue_and_priority
    if command.action is Action.HOLD:
        return _announced(sweep, command, "held", held_by=command.user)
    if command.action is Action.UNHOLD:
        return _announced(sweep, command, "released", held_by="")
    if command.action is Action.MOVE:
        labels = state.labels | {QUEUE_LABEL: command.queue}
        return _announced(sweep, command, f"queue {command.queue}", labels=labels)
    priority = _next(priority, command.action, config)
    class_name = config.queueing.priority_class(priority)
    labels, value = state.labels | job_labels("", class_name), seen.priority_values[class_name]
    what = f"priority {priority}"
    return _announced(sweep, command, what, labels=labels, priority=priority, value=value, lifted=())


def _announced(sweep: SweepRecord, command: Command, what: str, **changes: object) -> SweepRecord:
    event = Event(kind=EventKind.QUEUE_CHANGED, by=command.user, text=what)
    return sweep.enqueue(event, queueing=replace(sweep.queueing, **changes))  # type: ignore[arg-type]


def _next(priority: str, action: Action, config: Config) -> str:
    """Return the next priority in this direction; "" if there is none."""
    names = [each.name for each in config.queueing.priorities]
    if priority not in names:
        return names[-1 if action is Action.RAISE else 0] if names else ""
    place = names.index(priority) + STEP[action]
    return names[place] if 0 <= place < len(names) else ""
