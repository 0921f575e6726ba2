"""Start a trial again after it lost a worker, its metrics, or Katib's collector while its image was pulled:
how often, and what is deleted for it. Pure.

A new worker can't join the others, so all of them start again. Sweepbot deletes the Job with all pods, and
Katib creates it again. If Katib has counted the trial as failed by then, Sweepbot deletes the trial, too:
Katib creates it again from its suggestion, with the same name and parameters. If that failure has ended the
experiment, Sweepbot reopens it.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from bot.core.plan import SweepPlan
from bot.core.record import ACTIVE, SweepRecord
from bot.platform.pod_health.rules_startup import may_pass
from bot.sweep.features.interruptions import texts
from bot.sweep.features.interruptions.state import InterruptionsSeen, InterruptionState
from bot.sweep.model import engine
from bot.sweep.model.changes import Patch, RequiredChanges, deletions
from bot.sweep.model.observation import Observation
from k8s.engine import End, Experiment, Trial, TrialState
from k8s.jobs import Job, JobState
from k8s.objects import ReadOnce, read_once

MAX_DISRUPTIONS = 10  # of one trial, which then has failed: a kubelet also evicts for what a training does
MAX_RESTARTS = 2  # of one trial, for Katib's collector
MAX_REPORTS_LOST = 1  # restarts of one trial, for Sweepbot's reader, which tries again by itself
PULL_TIMEOUT = timedelta(minutes=1)  # of failed pulls; a new pod then pulls sooner than the kubelet's retry


def with_disruptions(sweep: SweepRecord, seen: Observation) -> Observation:
    """Return the observation with disrupted trials as live: they start again, and haven't failed."""
    state = sweep.of(InterruptionState)
    absent = frozenset(_missing(sweep, seen))
    reopens = seen.experiment is not None and bool(absent) and _has_room(seen.experiment, seen.trials)
    names = frozenset(trial.name for trial in _disrupted_trials(sweep, seen))
    disrupted = disrupted_jobs(sweep, seen)
    ending = seen.live_names.intersection(job.name for job in _of_uids(disrupted, seen))
    live = (replace(t, state=TrialState.LIVE) if t.name in names else t for t in seen.trials)
    trouble = tuple(each for each in seen.trouble if each.trial not in names | ending)
    return replace(
        seen,
        trials=ReadOnce(live) if names else seen.trials,
        trouble=trouble,
        starting_again=names,
        missing=absent,
        reopens=reopens,
        ran=frozenset({*state.ran, *state.interrupted}),
    )


def follow(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Report trials that the cluster interrupted, and those that run again; each once."""
    sweep = _restart_abandoned(sweep, seen, now)
    state, live, running = sweep.of(InterruptionState), seen.live_names, _running(sweep, seen)
    replaced, disrupted = disrupted_jobs(sweep, seen), _disrupted_of(sweep, seen)
    own = seen.of(InterruptionsSeen)
    restarts = [each for each in own.interruptions if not each.job_uid or each.job_uid in replaced]
    new = [each for each in restarts if each.trial in live - state.interrupted.keys()]
    again = {t: at for t, at in state.interrupted.items() if t in running}
    gone = {each.trial for each in new}
    absent = {*disrupted.values()} - seen.trial_names  # until Katib creates them again
    left = {t: at for t, at in state.interrupted.items() if t in live | absent and t not in again}
    unread = {pod.job_uid for pod in seen.notable_pods if pod.unread}
    state = InterruptionState(
        pull_errors={t: why for t, why in {**own.pull_errors, **state.pull_errors}.items() if t in live},
        ran=_sorted((({*state.ran} | running) & live) - gone, state.ran),
        interrupted=left | dict.fromkeys(sorted(gone), now),
        disrupted=disrupted,
        restarted=state.restarted | {each.job_uid: each.trial for each in restarts if each.job_uid in unread},
    )
    nodes = sweep.plan.nodes if sweep.plan else 1
    events = [texts.interrupted(each, nodes) for each in new]
    events += [texts.runs_again(trial, now - at) for trial, at in again.items()]
    return sweep.put(state).enqueue(*events)


def _sorted(names: set[str], before: tuple[str, ...]) -> tuple[str, ...]:
    return before if len(names) == len(before) and names.issuperset(before) else tuple(sorted(names))


def _running(sweep: SweepRecord, seen: Observation) -> frozenset[str]:
    """Return the trials that run, on all of their nodes, and aren't being stopped."""
    suspended = {job.name for job in _of_uids(disrupted_jobs(sweep, seen), seen)} | seen.incomplete
    suspended |= read_once(_suspended, seen.jobs)
    if any(pod.running and (pod.deleted or pod.disruption[0]) for pod in seen.notable_pods):
        up = {pod.job for pod in seen.pods if pod.running and not pod.deleted and not pod.disruption[0]}
        return frozenset(up - suspended)
    return seen.running - suspended


def _suspended(jobs: Sequence[Job]) -> frozenset[str]:
    return frozenset(job.name for job in jobs if job.suspended)


def _of_uids(uids: Collection[str], seen: Observation) -> list[Job]:
    return [job for job in seen.jobs if job.uid in uids] if uids else []


def _restart_abandoned(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Restart trials whose metrics collector has given up: Katib creates a deleted Job again.

    A pod still pulling its image is restarted once, which leaves a restart for when the image is there.
    """
    abandoned = [pod for pod in seen.notable_pods if pod.abandoned and not pod.deleted]
    live = seen.live_names - sweep.to_kill.keys()
    active = {j.uid for j in seen.active_jobs if abandoned} - sweep.of(InterruptionState).restarted.keys()
    for pod in abandoned:
        if pod.abandoned is None or pod.job not in live or pod.job_uid not in active:
            continue
        restarted = sweep.of(InterruptionState).restarted
        once = 1 if may_pass(*pod.waiting) and now - pod.abandoned > PULL_TIMEOUT else 0
        if list(restarted.values()).count(pod.job) < (MAX_RESTARTS if pod.running_since else once):
            sweep = sweep.change(InterruptionState, restarted=restarted | {pod.job_uid: pod.job})
            pulls = sweep.of(InterruptionState).pull_errors
            sweep = sweep.enqueue(texts.restarted(pod.job, pod.waiting[1] or pulls.get(pod.job, "")))
    return sweep


def changes(sweep: SweepRecord, plan: SweepPlan, seen: Observation, _: datetime) -> RequiredChanges:
    """Delete the Jobs and trials that Katib then creates again."""
    state = sweep.of(InterruptionState)
    restarted = state.restarted.keys() - state.disrupted.keys()
    active = [job for job in _of_uids(restarted, seen) if job.state is JobState.ACTIVE]
    abandoned = deletions(active, plan)
    replaced = deletions(_jobs_to_replace(sweep, seen), plan, wait=True)
    trials = (engine.run_again(plan, trial) for trial in _trials_to_replace(sweep, seen))
    return RequiredChanges(delete=(*abandoned, *replaced, *trials))


def reopen(
    _: SweepRecord, plan: SweepPlan, experiment: Experiment, seen: Observation, now: datetime
) -> Patch | None:
    return engine.reopen(plan, experiment, seen.trials, now) if seen.reopens else None


def disrupted_jobs(sweep: SweepRecord, seen: Observation) -> dict[str, str]:
    """Return the trials of the Jobs that are replaced, by UID; at most MAX_DISRUPTIONS for each trial."""
    return _replaceable(_known_jobs(sweep, seen))


def _disrupted_of(sweep: SweepRecord, seen: Observation) -> dict[str, str]:
    """Return what the record keeps of them: those of trials that haven't ended, or that start no more."""
    ended = seen.trial_names - seen.live_names
    known = _known_jobs(sweep, seen)
    left = _replaceable(known)
    return {uid: trial for uid, trial in known.items() if trial not in ended or uid not in left}


def _known_jobs(sweep: SweepRecord, seen: Observation) -> dict[str, str]:
    """Return the trials of disrupted Jobs by UID. One more than MAX_DISRUPTIONS shows that it is used up."""
    known = sweep.of(InterruptionState).disrupted
    times = Counter(known.values())
    new = {each.job_uid: each.trial for each in seen.of(InterruptionsSeen).interruptions if each.job_uid}
    return known | {uid: trial for uid, trial in new.items() if times[trial] <= MAX_DISRUPTIONS}


def _replaceable(known: dict[str, str]) -> dict[str, str]:
    times = Counter(known.values())
    return {uid: trial for uid, trial in known.items() if times[trial] <= MAX_DISRUPTIONS}


def _jobs_to_replace(sweep: SweepRecord, seen: Observation) -> list[Job]:
    """Return the Jobs to delete with their pods: workers of the next Job must not meet those of this one.

    Not one that completed nevertheless: its training would run again, which only lost metrics need.
    """
    state = sweep.of(InterruptionState)
    disrupted = _replaceable(state.disrupted)
    jobs = [job for job in _of_uids(disrupted, seen) if not job.deleted]
    return [job for job in jobs if job.state is not JobState.COMPLETE or job.uid in state.restarted]


def _trials_to_replace(sweep: SweepRecord, seen: Observation) -> list[Trial]:
    """Return the failed trial to delete, once its Job is gone: before, Katib would read its failure again.

    One after the other: Katib creates all missing ones as soon as one more can run. If these are more than
    can run in parallel, it deletes the newest trials, with their suggestions.
    """
    names = seen.starting_again - seen.job_names
    ready = [trial for trial in seen.trials if trial.name in names] if names else []
    waits = _missing(sweep, seen) and (seen.open or seen.reopens)
    return [] if waits else ready[:1]


def _missing(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the trials that were deleted, and that Katib hasn't created again yet."""
    return {*sweep.of(InterruptionState).disrupted.values()} - seen.trial_names


def _disrupted_trials(sweep: SweepRecord, seen: Observation) -> list[Trial]:
    """Return the failed trials that can start again: the experiment continues, or can be reopened."""
    disrupted = disrupted_jobs(sweep, seen)
    if not disrupted or sweep.phase not in ACTIVE or sweep.draining or seen.experiment is None:
        return []
    jobs = {job.name: job.uid for job in seen.jobs}
    failed = [
        trial
        for trial in seen.trials
        if trial.failed
        and trial.name not in sweep.to_kill
        and (jobs[trial.name] in disrupted if trial.name in jobs else trial.name in disrupted.values())
    ]
    rest = tuple(trial for trial in seen.trials if trial not in failed)
    goes_on = seen.open or seen.experiment.end is End.PAUSED or _has_room(seen.experiment, rest)
    return failed if goes_on else []


def _has_room(experiment: Experiment, trials: tuple[Trial, ...]) -> bool:
    """Return whether Katib ended the experiment by its counts, which these trials don't reach."""
    if experiment.end not in {End.TOO_MANY_FAILED, End.ALL_TRIALS}:
        return False
    failed = sum(trial.failed for trial in trials)
    ended = sum(trial.state is not TrialState.LIVE for trial in trials)
    is_within = experiment.max_failed is None or failed < experiment.max_failed
    return is_within and ended < experiment.max_trials
