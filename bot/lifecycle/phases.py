"""Decide how a sweep's record changes with what was observed. Pure.

    received -> opening -> building -> pending -> running -> stopping -> succeeded | failed | cancelled
        \\           \\                                        /
         `-> refused `-> refused       (a cancel goes from any phase to stopping)

1. received: the ConfigMap reserves the name. Git provides the commit and the space; an invalid request is
   refused with an ephemeral message.
2. opening: the thread is opened in the channel. The cluster has only the ConfigMap.
3. building: the registry has the image, or Jobs build it, shared by every sweep that needs the same one.
4. pending: the experiment is submitted; no trial has run yet. Katib's "Running" includes waiting Jobs.
5. running: counts and better results are reported.
6. held: the first trial failed (`bot.lifecycle.gate`); a user retries it, starts all trials, or cancels.
7. paused: no GPUs are allocated (`bot.lifecycle.pause`); a user resumes or cancels it.
8. stopping: no trials start, active ones are stopped. The end is reported once all GPUs are free.

`advance` returns the next record; `bot.lifecycle.required_changes` which objects the phase needs changed.
Neither has side effects, so a repeated reconcile is safe.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from bot.config.permissions import launch_denial, size_denial
from bot.config.policy import Config
from bot.core.commands import Action, AuditEntry, Command
from bot.core.events import Event, EventKind
from bot.core.record import Phase, SweepRecord
from bot.core.space import SearchSpace
from bot.health.diagnosis import Diagnosis
from bot.health.rules_startup import may_pass
from bot.launch.plan import image_with
from bot.lifecycle.commands import apply_command, with_entry
from bot.lifecycle.deadline import out_of_time, start_clock, time_left
from bot.lifecycle.disruptions import reopens
from bot.lifecycle.early_stopping import follow_early_stopping, with_stopped_values
from bot.lifecycle.events import (
    build_failed,
    build_finished,
    build_started,
    cluster_chosen,
    end_events,
    failure_reason,
    finished_trials,
    success_reason,
)
from bot.lifecycle.extension import limit_reason, more_trials
from bot.lifecycle.first_trials import failed_alike, follow
from bot.lifecycle.gate import follow_gate, is_held_or_will_be, of_attempt
from bot.lifecycle.live_values import follow_live
from bot.lifecycle.observation import Observation
from bot.lifecycle.pace import first_only, follow_pace, is_paced_end
from bot.lifecycle.pause import follow_pause, is_paused, resumed
from bot.lifecycle.progress import current_progress
from bot.lifecycle.queueing import follow_queue
from bot.lifecycle.search import follow_search
from bot.lifecycle.start import follow_start
from k8s.jobs import JobState
from k8s.katib.manifest import grace_of
from k8s.katib.patches import DRAINED, GOAL_REACHED
from k8s.katib.status import Experiment, ExperimentState, TrialState
from k8s.pods import Pod

EXPERIMENT_DELETED = "the Katib experiment was deleted, or isn't in this cluster"
MAX_RESTARTS = 2  # of one trial
PULL_TIMEOUT = timedelta(minutes=1)  # of failed pulls; a new pod then pulls sooner than the kubelet's retry
METRICS_TIMEOUT = timedelta(minutes=10)  # the collector reports within seconds of the training's end
STUCK_AFTER = timedelta(minutes=5)  # after the grace period; a dead node never reports a pod's end


def advance(sweep: SweepRecord, seen: Observation, config: Config, now: datetime) -> SweepRecord:
    """Apply commands and the observation. Return the next record, with new events in its outbox."""
    attempt = sweep.attempt
    for command in seen.commands:
        sweep = apply_command(sweep, command, seen, config, now)
    if _cancelled(sweep):
        return _cancel(sweep, now)
    if sweep.attempt != attempt:  # the observation is of the earlier experiment
        return sweep
    seen = of_attempt(sweep, seen)
    match sweep.phase:
        case Phase.RECEIVED:
            return _received(sweep, seen, config, now)
        case Phase.OPENING:
            return sweep.to(Phase.BUILDING, now, *cluster_chosen(sweep)) if sweep.thread else sweep
        case Phase.BUILDING:
            return _building(sweep, seen, now)
        case Phase.PENDING | Phase.RUNNING:
            return _active(sweep, seen, now)
        case Phase.PAUSED:
            return sweep if is_paused(sweep, seen) else _unpaused(sweep, seen, now)
        case Phase.STOPPING:
            seen = replace(seen, trials=with_stopped_values(sweep, seen.trials))
            return _stopping(replace(sweep, progress=current_progress(sweep, seen)), seen, config, now)
        case _:
            return sweep


def apply_cancels(
    sweep: SweepRecord, commands: Iterable[Command], config: Config, now: datetime
) -> SweepRecord:
    """Apply cancels without an observation: they work while the cluster or git doesn't respond."""
    for command in commands:
        sweep = apply_command(sweep, command, Observation(), config, now)
    return _cancel(sweep, now) if _cancelled(sweep) else sweep


def _cancelled(sweep: SweepRecord) -> bool:
    return bool(sweep.cancelled_by) and not (sweep.phase.final or sweep.phase is Phase.STOPPING)


def _cancel(sweep: SweepRecord, now: datetime) -> SweepRecord:
    stopping = Event(kind=EventKind.STOPPING)
    return sweep.to(Phase.STOPPING, now, stopping, ending=Phase.CANCELLED, reason="cancelled")


def requeue_after(
    before: SweepRecord, after: SweepRecord, now: datetime, due: timedelta | None = None
) -> timedelta | None:
    """Return when to reconcile if nothing wakes the sweep; None: never.

    At once after a change of phase, when the observation is due, or as a safety net for missed events.
    """
    if after.phase.final:
        return None
    if after.phase is not before.phase or after.thread != before.thread:
        return timedelta(0)
    slow = after.phase in {Phase.RUNNING, Phase.BUILDING, Phase.HELD, Phase.PAUSED}
    due = min((each for each in (due, time_left(after, now)) if each is not None), default=None)
    net = timedelta(minutes=5) if slow else timedelta(seconds=20)
    return min(net, due) if due else net


def _received(sweep: SweepRecord, seen: Observation, config: Config, now: datetime) -> SweepRecord:
    user, channel = sweep.requester.user, sweep.requester.channel
    forbidden = launch_denial(user, channel, config)
    if seen.plan and not forbidden:
        forbidden = size_denial(user, seen.plan, config, seen.others)
    refusal = forbidden or seen.refusal
    if not seen.plan and not refusal:  # the same user's older sweep is planned first
        return sweep
    sweep = with_entry(
        sweep,
        AuditEntry(at=now, user=user, name=sweep.requester.user_name, action=Action.LAUNCH, refused=refusal),
    )
    if seen.plan and not refusal:
        cluster = seen.plan.cluster
        return sweep.to(Phase.OPENING, now, plan=seen.plan, gated=seen.plan.space.gate, cluster=cluster)
    return refuse(sweep, refusal, now, allowed=not forbidden)


def refuse(sweep: SweepRecord, why: str, now: datetime, *, allowed: bool = True) -> SweepRecord:
    """End a sweep that can't start, with an ephemeral message to its requester."""
    requester, kind = sweep.requester, EventKind.REFUSED if allowed else EventKind.NOT_ALLOWED
    event = Event(kind=kind, text=why, to_user=requester.user, response_url=requester.response_url)
    return sweep.to(Phase.REFUSED, now, event, reason=why)


def extension_refused(sweep: SweepRecord, why: str, now: datetime) -> SweepRecord:
    """Report that Katib rejected more trials; the sweep ends again as before."""
    event = Event(kind=EventKind.SUBMIT_REFUSED, text="extension", detail=why)
    done = finished_trials(sweep.progress)
    return sweep.to(Phase.SUCCEEDED, now, event, reason=done, ending=Phase.SUCCEEDED, extending=False)


def fail(sweep: SweepRecord, why: str, now: datetime, *events: Event) -> SweepRecord:
    return sweep.to(Phase.STOPPING, now, *events, ending=Phase.FAILED, reason=why)


def _building(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    plan = sweep.plan
    if plan is None:
        return sweep
    if not plan.builds:
        ready = Event(kind=EventKind.IMAGE_READY, text=plan.image_by_digest)
        return sweep.to(Phase.PENDING, now, ready, image=plan.image_by_digest)
    if seen.digest:
        return sweep.to(Phase.PENDING, now, build_finished(sweep, seen), image=image_with(plan, seen.digest))
    running = {b.job.name: b.job.uid for b in seen.builds if b.job and b.running}
    digests = {b.build.tag: b.digest for b in seen.builds if b.there}
    failed = next((b for b in seen.builds if b.ended_without_image and b.is_own(sweep.build_uids)), None)
    sweep = replace(sweep, build_uids=sweep.build_uids | running, digests=digests)
    if failed:
        return fail(sweep, "image build failed", now, build_failed(failed))
    if not sweep.build_started_at:
        return sweep.enqueue(build_started(seen), build_started_at=now)
    trouble = next((b.trouble for b in seen.builds if b.running and b.trouble), None)
    return _build_waits(sweep, trouble)


def _build_waits(sweep: SweepRecord, trouble: Diagnosis | None) -> SweepRecord:
    """Report why a build hasn't started: once in the thread, and in the parent while it lasts."""
    if trouble is None:
        return replace(sweep, build_trouble="")
    fix = f" *Fix:* {trouble.fix}" if trouble.fix else ""
    sweep = replace(sweep, build_trouble=f"{trouble.text}{fix}")
    key = f"{EventKind.BUILD_WAITING}/{trouble.key}"
    if key in sweep.sent_keys:
        return sweep
    event = Event(kind=EventKind.BUILD_WAITING, text=sweep.build_trouble, detail=trouble.detail)
    return sweep.enqueue(event, sent_keys=(*sweep.sent_keys, key))


def submitted(sweep: SweepRecord) -> SweepRecord:
    """Report that the experiment was created; once."""
    return sweep if sweep.submitted else sweep.enqueue(Event(kind=EventKind.SUBMITTED), submitted=True)


def _submitted(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    if seen.foreign:
        return fail(sweep, f"a Katib experiment named {sweep.id} already exists", now)
    return submitted(sweep) if seen.experiment else sweep


def _active(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    if (sweep := follow_start(sweep, seen, now)).phase is Phase.PENDING:
        sweep = _pending(follow(_submitted(sweep, seen, now), seen), seen, now)
        return _gated(sweep, seen, now)
    return _gated(out_of_time(follow(sweep, seen), now), seen, now)


def _pending(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    if sweep.phase is not Phase.PENDING:
        return sweep
    ready = (p for p in seen.pods if p.running_since and p.job not in seen.incomplete)
    started = next((p for p in ready if not p.abandoned), None)
    done = next((t for t in seen.trials if t.state is TrialState.SUCCEEDED), None)
    if started or done:
        trial = started.job if started else done.name if done else ""
        failed = sum(t.state in {TrialState.FAILED, TrialState.NO_METRICS} for t in seen.trials)
        running = Event(kind=EventKind.FIRST_TRIAL_RUNNING, trial=trial, more=failed)
        return start_clock(sweep.to(Phase.RUNNING, now, running), now)
    return sweep


def _gated(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    sweep = follow_gate(sweep, seen, now)
    if sweep.phase is Phase.HELD:
        return replace(sweep, progress=current_progress(sweep, seen))
    return _running(sweep, seen, now)


def _running(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Follow the trials, also while pending: the sweep can fail before a pod is seen running."""
    if sweep.phase not in {Phase.PENDING, Phase.RUNNING} or not sweep.submitted or sweep.plan is None:
        return sweep
    if seen.experiment is None:
        return fail(sweep, EXPERIMENT_DELETED, now)
    space = sweep.plan.space
    sweep = follow_live(follow_search(_results(sweep, seen), seen), seen, now)
    sweep = follow_early_stopping(sweep, seen, now)
    sweep = follow_queue(_restarted(_killed(_unreported(sweep, seen, now), seen), seen, now), seen, now)
    sweep, experiment = follow_pace(sweep, seen, now), seen.experiment
    if is_paused(sweep, seen):
        return _pausing(sweep, seen, now)
    if seen.open:
        waits = sweep.extending and first_only(space, experiment)
        return replace(sweep, extending=waits, resuming=False)
    if is_held_or_will_be(sweep, seen) or seen.starting_again or reopens(sweep, seen):
        return sweep
    if sweep.extending and sweep.progress.finished < space.max_trials:
        return sweep  # Katib hasn't removed the previous end yet
    if is_paced_end(sweep, experiment):
        return sweep  # continued by a higher maxTrialCount
    if seen.live and _may_finish(space, experiment):
        return sweep
    if experiment.state is ExperimentState.SUCCEEDED:
        reason = success_reason(sweep, experiment)
        return sweep.to(Phase.STOPPING, now, ending=Phase.SUCCEEDED, reason=reason)
    return fail(sweep, failure_reason(experiment, sweep.progress), now)


def _pausing(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    sweep = follow_pause(sweep, seen, now)
    if sweep.phase is Phase.PAUSED or not (sweep.pause_now and sweep.paused_at):
        return sweep
    return _report_stuck(sweep, seen) if now - sweep.paused_at > _stuck_timeout(sweep) else sweep


def _unpaused(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Handle an experiment that was resumed before Redis lost the record, or was deleted."""
    if seen.experiment is None:
        return fail(sweep, EXPERIMENT_DELETED, now)
    return _active(resumed(sweep, now), seen, now)


def _results(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    before, progress = sweep.progress.best, current_progress(sweep, seen)
    sweep = replace(sweep, progress=progress)
    if progress.best and (before is None or progress.best.value != before.value):
        sweep = sweep.enqueue(Event(kind=EventKind.BETTER, result=progress.best))
    return sweep


def _unreported(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Stop trials that completed without reporting metrics: Katib would wait for days, then rerun them."""
    late = {j.name: now - j.ended for j in seen.jobs if j.state is JobState.COMPLETE and j.ended}
    given_up = {t.name: "" for t in seen.live if late.get(t.name, METRICS_TIMEOUT) > METRICS_TIMEOUT}
    return replace(sweep, to_kill=given_up | sweep.to_kill)


def _killed(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    """Report stopped trials once their pods are gone."""
    for trial, user in sweep.to_kill.items():
        if trial not in seen.held:
            rest = {t: u for t, u in sweep.to_kill.items() if t != trial}
            sweep = sweep.enqueue(Event(kind=EventKind.TRIAL_KILLED, trial=trial, by=user), to_kill=rest)
    return sweep


def _restarted(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Restart trials whose metrics collector has given up: Katib creates a deleted Job again.

    A pod still pulling its image is restarted once, which leaves a restart for when the image is there.
    """
    live = {t.name for t in seen.live} - sweep.to_kill.keys()
    active = {j.uid for j in seen.active_jobs} - sweep.restarted.keys()
    for pod in seen.pods:
        if pod.job not in live or pod.job_uid not in active or pod.deleted or not pod.abandoned:
            continue
        times = list(sweep.restarted.values()).count(pod.job)
        once = 1 if may_pass(*pod.waiting) and now - pod.abandoned > PULL_TIMEOUT else 0
        if times < (MAX_RESTARTS if pod.running_since else once):
            event = Event(kind=EventKind.TRIAL_RESTARTED, trial=pod.job, detail=_pull_error(sweep, pod))
            sweep = sweep.enqueue(event, restarted=sweep.restarted | {pod.job_uid: pod.job})
    return sweep


def _pull_error(sweep: SweepRecord, pod: Pod) -> str:
    known = sweep.health
    return pod.waiting[1] or (known.detail if known and known.trial == pod.job else "")


def _may_finish(space: SearchSpace, experiment: Experiment) -> bool:
    """Return whether active trials finish by themselves after the experiment's end."""
    return experiment.reason == DRAINED or (space.finish_running and experiment.reason == GOAL_REACHED)


def _stopping(sweep: SweepRecord, seen: Observation, config: Config, now: datetime) -> SweepRecord:
    ending = sweep.ending
    if ending is None:
        return sweep
    if not _gpus_free(sweep, seen):
        return _report_stuck(sweep, seen) if now - sweep.since > _stuck_timeout(sweep) else sweep
    if sweep.plan and ending is Phase.SUCCEEDED:
        more = more_trials(sweep, sweep.plan, seen.experiment, config)
        why = "" if more else limit_reason(sweep, seen.experiment, config)
        sweep = replace(sweep, more_trials=more, not_extendable=why)
    return sweep.to(ending, now, *failed_alike(sweep), *end_events(sweep, ending))


def _stuck_timeout(sweep: SweepRecord) -> timedelta:
    return STUCK_AFTER + timedelta(seconds=grace_of(sweep.plan.with_pod) if sweep.plan else 0)


def _report_stuck(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    building = [pod for build in seen.unwanted_builds(sweep.image) for pod in build.alive]
    alive = [pod for pod in (*seen.pods, *building) if not pod.finished]
    pods = [f"{pod.name} on {pod.node or 'no node'}" for pod in alive]
    if not pods or EventKind.STUCK in sweep.sent_keys:
        return sweep
    event = Event(kind=EventKind.STUCK, text=", ".join(pods[:10]))
    return sweep.enqueue(event, sent_keys=(*sweep.sent_keys, EventKind.STUCK))


def _gpus_free(sweep: SweepRecord, seen: Observation) -> bool:
    """Return whether nothing runs for this sweep and nothing can start."""
    return not (seen.open or seen.held or seen.unwanted_builds(sweep.image))
