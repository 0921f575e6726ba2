"""Start a trial of several nodes again after the cluster stopped one of its workers. Pure.

A new worker can't join the others, so all of them start again. Sweepbot deletes the Job with all pods, and
Katib creates it again. If Katib has counted the trial as failed by then, Sweepbot deletes the trial, too:
Katib creates it again from its suggestion, with the same name and parameters. If that failure has ended the
experiment, Sweepbot reopens it.
"""

from collections import Counter
from dataclasses import replace

from bot.core.record import Phase, SweepRecord
from bot.lifecycle.observation import Observation
from k8s.jobs import Job, JobState
from k8s.katib.patches import MAX_TRIALS_REACHED, PAUSED, TOO_MANY_FAILED
from k8s.katib.status import Experiment, ExperimentState, Trial, TrialState

MAX_DISRUPTIONS = 10  # of one trial, which then has failed: a kubelet also evicts for what a training does
FAILED = {TrialState.FAILED, TrialState.NO_METRICS}


def with_disruptions(sweep: SweepRecord, seen: Observation) -> Observation:
    """Return the observation with disrupted trials as live: they start again, and haven't failed."""
    names = frozenset(trial.name for trial in _disrupted_trials(sweep, seen))
    disrupted = disrupted_jobs(sweep, seen)
    ending = {job.name for job in seen.jobs if job.uid in disrupted} & {trial.name for trial in seen.live}
    live = (replace(t, state=TrialState.LIVE) if t.name in names else t for t in seen.trials)
    trouble = tuple(each for each in seen.trouble if each.trial not in names | ending)
    return replace(seen, trials=tuple(live), trouble=trouble, starting_again=names)


def disrupted_jobs(sweep: SweepRecord, seen: Observation) -> dict[str, str]:
    """Return the trials of the Jobs that are replaced, by UID; at most MAX_DISRUPTIONS for each trial."""
    return _replaceable(_known_jobs(sweep, seen))


def disrupted_of(sweep: SweepRecord, seen: Observation) -> dict[str, str]:
    """Return what the record keeps of them: those of trials that haven't ended, or that start no more."""
    ended = {trial.name for trial in seen.trials if trial.state is not TrialState.LIVE}
    known = _known_jobs(sweep, seen)
    left = _replaceable(known)
    return {uid: trial for uid, trial in known.items() if trial not in ended or uid not in left}


def _known_jobs(sweep: SweepRecord, seen: Observation) -> dict[str, str]:
    """Return the trials of disrupted Jobs by UID. One more than MAX_DISRUPTIONS shows that it is used up."""
    known = sweep.queueing.disrupted
    times = Counter(known.values())
    new = {each.job_uid: each.trial for each in seen.interruptions if each.job_uid}
    return known | {uid: trial for uid, trial in new.items() if times[trial] <= MAX_DISRUPTIONS}


def _replaceable(known: dict[str, str]) -> dict[str, str]:
    times = Counter(known.values())
    return {uid: trial for uid, trial in known.items() if times[trial] <= MAX_DISRUPTIONS}


def jobs_to_replace(sweep: SweepRecord, seen: Observation) -> list[Job]:
    """Return the Jobs to delete with their pods: workers of the next Job must not meet those of this one.

    Not one that completed nevertheless: its training would run again.
    """
    disrupted = _replaceable(sweep.queueing.disrupted)
    left = [job for job in seen.jobs if job.state is not JobState.COMPLETE]
    return [job for job in left if job.uid in disrupted and not job.deleted]


def trials_to_replace(sweep: SweepRecord, seen: Observation) -> list[Trial]:
    """Return the failed trial to delete, once its Job is gone: before, Katib would read its failure again.

    One after the other: Katib creates all missing ones as soon as one more can run. If these are more than
    parallelTrialCount, it deletes the newest trials, with their suggestions.
    """
    jobs = {job.name for job in seen.jobs}
    ready = [trial for trial in seen.trials if trial.name in seen.starting_again and trial.name not in jobs]
    waits = missing(sweep, seen) and (seen.open or reopens(sweep, seen))
    return [] if waits else ready[:1]


def reopens(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether the experiment has ended only because of trials that Katib has to create again."""
    if seen.experiment is None or not missing(sweep, seen):
        return False
    counted = (
        replace(t, state=TrialState.FAILED) if t.name in seen.starting_again else t for t in seen.trials
    )
    return _has_room(seen.experiment, tuple(counted))


def missing(sweep: SweepRecord, seen: Observation) -> set[str]:
    """Return the trials that were deleted, and that Katib hasn't created again yet."""
    return {*sweep.queueing.disrupted.values()} - {trial.name for trial in seen.trials}


def _disrupted_trials(sweep: SweepRecord, seen: Observation) -> list[Trial]:
    """Return the failed trials that can start again: the experiment continues, or can be reopened."""
    if sweep.phase not in {Phase.PENDING, Phase.RUNNING} or sweep.draining or seen.experiment is None:
        return []
    jobs = {job.name: job.uid for job in seen.jobs}
    disrupted = disrupted_jobs(sweep, seen)
    found = [
        trial
        for trial in seen.trials
        if trial.state is TrialState.FAILED
        and trial.name not in sweep.to_kill
        and (jobs[trial.name] in disrupted if trial.name in jobs else trial.name in disrupted.values())
    ]
    rest = tuple(trial for trial in seen.trials if trial not in found)
    goes_on = seen.open or seen.experiment.reason == PAUSED or _has_room(seen.experiment, rest)
    return found if goes_on else []


def _has_room(experiment: Experiment, trials: tuple[Trial, ...]) -> bool:
    """Return whether Katib ended the experiment by its counts, which these trials don't reach."""
    spec, states = experiment.raw["spec"], [trial.state for trial in trials]
    failed = sum(state in FAILED for state in states)
    ended = sum(state is not TrialState.LIVE for state in states)
    by_failures = experiment.state is ExperimentState.FAILED and experiment.message == TOO_MANY_FAILED
    by_counts = by_failures or experiment.reason == MAX_TRIALS_REACHED
    most_failed = spec.get("maxFailedTrialCount", failed + 1)  # a throttled experiment can have none
    return by_counts and failed < most_failed and ended < spec["maxTrialCount"]
