"""A sweep whose experiment is submitted: first trial, `max_hours`, stopped trials and those without metrics,
that it ended, also after an extension, and why, until all GPUs are free again. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.core.request import Notify
from bot.core.space import BRANCH
from bot.sweep.lifecycle import texts
from bot.sweep.model import engine
from bot.sweep.model.changes import Delete, RequiredChanges, deletions
from bot.sweep.model.experiment import EXPERIMENT_DELETED, OUT_OF_TIME, is_limited
from bot.sweep.model.observation import Observation
from bot.sweep.model.progress import current_progress, finished_trials
from bot.sweep.results import run_tags
from bot.text.wording import counted
from k8s.engine import End, Experiment, ExperimentState, Trial, TrialState
from k8s.jobs import Job, JobState
from k8s.katib.manifest import with_annotations, with_image, with_values, with_variable
from k8s.objects import Manifest, read_once

METRICS_TIMEOUT = timedelta(minutes=10)  # the collector reports within seconds of the training's end


def submitted(sweep: SweepRecord) -> SweepRecord:
    """Report that the experiment was created; once."""
    if sweep.submitted or sweep.plan is None:
        return sweep
    plan = sweep.plan
    first = "○ First trial runs alone" if sweep.first_only else "○ First trial"
    sweep = sweep.step(submitted=texts.submitted(sweep, plan), first=first)
    return sweep.enqueue(*(texts.notes(plan) if sweep.attempt == 1 else ()), submitted=True)


def first_trial(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Report that the first trial runs, or has succeeded; `max_hours` counts from then on."""
    ready = (p for p in seen.pods if p.running_since and p.job not in seen.incomplete)
    started = next((p for p in ready if not p.abandoned), None)
    done = next(iter(seen.succeeded), None)
    if started is None and done is None:
        return sweep
    hours = sweep.plan.space.max_hours if sweep.plan else None
    deadline = sweep.deadline or (now + timedelta(hours=hours) if hours else None)
    step = {} if sweep.first_only else {"first": "✓ First trial started"}
    return sweep.to(Phase.RUNNING, now, deadline=deadline).step(**step)


def out_of_time(sweep: SweepRecord, _: Observation, now: datetime) -> SweepRecord:
    """Drain the sweep once `max_hours` have passed since the first trial ran; holds don't count."""
    if not sweep.deadline or now < sweep.deadline or not _clock_runs(sweep):
        return sweep
    return sweep.enqueue(texts.out_of_time(sweep), draining=OUT_OF_TIME)


def time_left(sweep: SweepRecord, now: datetime) -> timedelta | None:
    """Return the time until the deadline; None if there is none or it has passed."""
    if sweep.phase is not Phase.RUNNING or not sweep.deadline or not _clock_runs(sweep):
        return None
    return max(sweep.deadline - now, timedelta(seconds=1))


def _clock_runs(sweep: SweepRecord) -> bool:
    return not sweep.draining and not sweep.holds


def follow_results(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Count the trials, find the best result, and report once which objectives finished trials lack."""
    if not sweep.submitted or sweep.plan is None:
        return sweep
    space = sweep.plan.space
    if seen.experiment is None:
        return sweep.fail(EXPERIMENT_DELETED, now)
    sweep = replace(sweep, progress=current_progress(sweep, seen))
    missing = [name for name in space.goals if not any(name in trial.more for trial in seen.succeeded)]
    if not (missing and seen.succeeded):
        return sweep
    return sweep.enqueue_once("no_objective", texts.no_objective(sweep, seen.succeeded[0].name, missing))


def follow_kills(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Stop trials that completed without metrics, and report stopped ones once their pods are gone.

    Katib would wait for days for these metrics, and then run the trial again.
    """
    if sweep.phase is not Phase.STOPPING:
        completed = read_once(_completed, seen.jobs)
        waiting = sorted(seen.live_names & completed.keys())
        given_up = {name: "" for name in waiting if now - completed[name] > METRICS_TIMEOUT}
        sweep = replace(sweep, to_kill=given_up | sweep.to_kill) if given_up else sweep
    if not sweep.to_kill:
        return sweep
    gone = {trial: user for trial, user in sweep.to_kill.items() if trial not in seen.held}
    left = {trial: user for trial, user in sweep.to_kill.items() if trial not in gone}
    return sweep.enqueue(*(texts.trial_killed(sweep, *one) for one in gone.items()), to_kill=left)


def _completed(jobs: Sequence[Job]) -> dict[str, datetime]:
    return {job.name: job.ended for job in jobs if job.state is JobState.COMPLETE and job.ended}


def gpus_free(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether nothing runs for this sweep and nothing can start."""
    return not (seen.open or seen.held or seen.unwanted_builds(sweep.image))


def follow_end(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Stop the sweep once its experiment has ended, unless Katib hasn't removed an earlier end yet."""
    plan, experiment = sweep.plan, seen.experiment
    if plan is None or experiment is None or (seen.open and not sweep.extending):
        return sweep
    if seen.open:
        return sweep if is_limited(plan, experiment) else replace(sweep, extending=False)
    is_earlier = sweep.extending and experiment.end is End.ALL_TRIALS  # Katib continues after no other
    if is_earlier and sweep.progress.finished < plan.space.max_trials:
        return sweep
    if seen.live and (
        experiment.end is End.DRAINED or (plan.space.finish_running and experiment.end is End.TARGET)
    ):
        return sweep  # active trials finish by themselves
    if experiment.state is ExperimentState.SUCCEEDED:
        return sweep.to(Phase.STOPPING, now, ending=Phase.SUCCEEDED, reason=_success(sweep, plan, experiment))
    return sweep.fail(_failure(experiment, sweep), now)


def _success(sweep: SweepRecord, plan: SweepPlan, experiment: Experiment) -> str:
    if experiment.end is End.TARGET:
        return "target reached"
    # A draining sweep can use up a total that was lowered for other reasons.
    is_short = sweep.draining and sweep.progress.finished < plan.space.max_trials
    if experiment.end is End.DRAINED or is_short:
        return f"{sweep.draining or 'drained'} after {counted(sweep.progress.finished, 'trial')}"
    return finished_trials(sweep.progress)


def _failure(experiment: Experiment, sweep: SweepRecord) -> str:
    """Return why Katib failed the experiment: failed trials, or its suggestion service."""
    if sweep.progress.failed and experiment.end in {End.TOO_MANY_FAILED, End.FAILED}:
        return sweep.cause or f"{counted(sweep.progress.failed, 'trial')} failed"
    return f"Katib ended the experiment: {experiment.message or 'no reason given'}"


def ended(sweep: SweepRecord, ending: Phase, now: datetime, saved: str = "") -> SweepRecord:
    """Report the end in the thread, and to everyone who gets it as a direct message; then the files.

    `saved`: a sentence about what the sweep used or saved.
    """
    event = texts.ended(sweep, ending, saved)
    also = {sweep.requester.user} if sweep.request.notify is Notify.DM else set()
    if not sweep.thread and sweep.cancelled_by:
        also.add(sweep.cancelled_by)
    direct = [texts.direct_end(sweep, event, user) for user in sorted(also - {event.to_user})]
    files = (texts.RESULT_FILES,) if sweep.submitted else ()
    return sweep.to(ending, now, event, *direct, *files)


def manifest(sweep: SweepRecord, plan: SweepPlan, image: str) -> Manifest:
    """Return the experiment with what was unknown when it was planned: image, thread, and MLflow page."""
    links = {"sweepbot/thread": sweep.permalink, "sweepbot/mlflow": sweep.results_url}
    experiment = with_annotations(plan.experiment, {name: url for name, url in links.items() if url})
    tags = run_tags.submitted(sweep.id, "" if plan.branches else image, sweep.permalink)
    experiment = with_variable(experiment, run_tags.VARIABLE, partial(run_tags.added, tags=tags))
    return with_image(with_values(experiment, BRANCH, plan.branch_values), image)


def kill_changes(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> RequiredChanges:
    """Stop cancelled trials. Katib recreates a deleted Job until it has read that the trial was stopped."""
    doomed = [trial for trial in seen.live if trial.name in sweep.to_kill] if sweep.to_kill else []
    unwanted = read_once(_killed, seen.trials) | sweep.to_kill.keys()
    jobs = [job for job in seen.active_jobs if job.name in unwanted] if unwanted else []
    patch = engine.stop_trials(plan, doomed, "stopped by request", now, last=seen.last_values)
    return RequiredChanges(patch=patch, delete=deletions(jobs, plan))


def _killed(trials: Sequence[Trial]) -> frozenset[str]:
    return frozenset(trial.name for trial in trials if trial.killed)


def stop_changes(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> RequiredChanges:
    """End the experiment, then stop its trials in a later reconcile: a trial could start between the two."""
    if seen.experiment and seen.open:
        return RequiredChanges(patch=(engine.stop_all(plan, seen.experiment, sweep.reason, now),))
    jobs = deletions(seen.active_jobs, plan)
    left = seen.unwanted_builds(sweep.image)
    builds = [Delete(ref=b.build.ref, uid=b.job.uid, build=True) for b in left if b.job and b.running]
    known = {*seen.ran, *(pod.job for pod in seen.pods if pod.node)}
    started = [t for t in seen.live if t.name in known or t.name in seen.finishing]
    others = [t for t in seen.live if t not in started]
    patches = engine.stop_trials(plan, started, sweep.reason, now)
    patches += engine.stop_trials(plan, others, sweep.reason, now, state=TrialState.NOT_STARTED)
    return RequiredChanges(patch=patches, delete=(*jobs, *builds))
