"""The life of a sweep, on one page.

    received -> opening -> building -> proving -> running -> stopping -> succeeded | failed | cancelled
        \\           \\                                        /
         `-> refused `-> refused       (cancelled from anywhere: straight to stopping)

1. received: the durable record claims the name. Git is asked for the commit and the space; a mistake is told
   to the person privately: refused.
2. opening: the thread is opened in the channel. Nothing exists in the cluster but the durable record.
3. building: the registry has the image, or Jobs make it (or its dependencies and its code, to be put together
   there), shared by every sweep that needs the same.
4. proving: the experiment is submitted, no trial was seen running. Katib says "Running" for waiting Jobs too.
5. running: counts and better results are told.
6. stopping: Katib starts nothing more; what is live is ended; nobody says the end before the GPUs are free.

`advance` says what the record becomes; `bot.sweeps.required_changes` which objects the phase wants changed.
Both only look and answer, so asking twice does no harm.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from bot.config.permissions import launch_denial, size_denial
from bot.config.policy import Config
from bot.core.commands import Action, AuditEntry, Command
from bot.core.events import Event, EventKind, Progress, Result
from bot.core.record import Phase, SweepRecord
from bot.core.space import Goal, SearchSpace
from bot.health.diagnosis import Diagnosis
from bot.health.rules_startup import may_pass
from bot.launch.plan import image_with
from bot.sweeps.commands import apply_command, with_entry
from bot.sweeps.events import (
    build_failed,
    build_finished,
    build_started,
    end_events,
    failure_reason,
    finished_trials,
    success_reason,
    to_owner,
)
from bot.sweeps.first_trials import failed_alike, follow
from bot.sweeps.observation import Observation
from k8s.jobs import JobState
from k8s.katib.patches import DRAINED, GOAL_REACHED
from k8s.katib.spec import grace_of
from k8s.katib.status import Experiment, ExperimentState, Trial, TrialState
from k8s.pods import Pod

RESTARTS = 2  # of one trial
PULLING = timedelta(minutes=1)  # of failed pulls; then a new pod's first pull comes before the next try
GIVEN_UP = timedelta(minutes=10)  # the collector reports within seconds of the training's end
PRIVATELY = "/privately"  # ends the key of trouble that was told before there was a thread
STUCK_AFTER = timedelta(minutes=5)  # beyond a pod's grace; a node that is dead never reports


def advance(sweep: SweepRecord, seen: Observation, config: Config, now: datetime) -> SweepRecord:
    for command in seen.commands:
        sweep = apply_command(sweep, command, seen, config, now)
    if _cancelled(sweep):
        return _cancel(sweep, now)
    match sweep.phase:
        case Phase.RECEIVED:
            return _received(sweep, seen, config, now)
        case Phase.OPENING:
            return sweep.to(Phase.BUILDING, now) if sweep.thread else sweep
        case Phase.BUILDING:
            return _building(sweep, seen, now)
        case Phase.PENDING:
            sweep = follow(_submitted(sweep, seen, now), seen)
            return _running(_proving(sweep, seen, now), seen, now)
        case Phase.RUNNING:
            return _running(follow(sweep, seen), seen, now)
        case Phase.STOPPING:
            return _stopping(replace(sweep, progress=_progress(sweep, seen)), seen, now)
        case _:
            return sweep


def apply_cancels(
    sweep: SweepRecord, commands: Iterable[Command], config: Config, now: datetime
) -> SweepRecord:
    """What can be decided without seeing anything: whoever cancels is heard while all else is away."""
    for command in commands:
        sweep = apply_command(sweep, command, Observation(), config, now)
    return _cancel(sweep, now) if _cancelled(sweep) else sweep


def _cancelled(sweep: SweepRecord) -> bool:
    return bool(sweep.cancelled_by) and not (sweep.phase.final or sweep.phase is Phase.STOPPING)


def _cancel(sweep: SweepRecord, now: datetime) -> SweepRecord:
    stopping = Event(kind=EventKind.STOPPING)
    return sweep.to(Phase.STOPPING, now, stopping, ending=Phase.CANCELLED, reason="cancelled")


def tell_restored(sweep: SweepRecord) -> SweepRecord:
    """Redis lost its data and the cluster's record takes over; questions of the last minutes are gone."""
    return sweep if sweep.phase.final else sweep.enqueue(to_owner(sweep, Event(kind=EventKind.RESTORED)))


def quarantine(sweep: SweepRecord, why: str) -> SweepRecord:
    event = to_owner(sweep, Event(kind=EventKind.QUARANTINED, detail=why))
    return sweep.enqueue(
        event, quarantined=True, shown=""
    )  # the parent is drawn at once: no other turn follows


def released(sweep: SweepRecord) -> SweepRecord:
    return sweep.enqueue(to_owner(sweep, Event(kind=EventKind.RELEASED)), quarantined=False)


def report_trouble(sweep: SweepRecord, why: str) -> SweepRecord:
    """Turns of this sweep fail, and go on failing: said once in each phase, privately without a thread."""
    key = f"{EventKind.TROUBLE}/{sweep.phase}{'' if sweep.thread else PRIVATELY}"
    if key in sweep.sent_keys or sweep.phase.final:
        return sweep
    event = to_owner(sweep, Event(kind=EventKind.TROUBLE, detail=why))
    return sweep.enqueue(event, sent_keys=(*sweep.sent_keys, key))


def trouble_over(sweep: SweepRecord) -> SweepRecord:
    """A turn went well again; what comes next of the kind is told anew.

    Said in the thread if the trouble was; whoever was told privately sees the thread open.
    """
    over = [key for key in sweep.sent_keys if key.startswith(f"{EventKind.TROUBLE}/")]
    if not over:
        return sweep
    in_thread = any(not key.endswith(PRIVATELY) for key in over) and not sweep.phase.final
    event = (Event(kind=EventKind.TROUBLE_OVER),) if in_thread else ()
    return sweep.enqueue(*event, sent_keys=tuple(key for key in sweep.sent_keys if key not in over))


def requeue_after(before: SweepRecord, after: SweepRecord, due: timedelta | None = None) -> timedelta | None:
    """When to look without being woken: at once after a step, when something is due, or as a net."""
    if after.phase.final:
        return None
    if after.phase is not before.phase or after.thread != before.thread:
        return timedelta(0)
    slow = after.phase in {Phase.RUNNING, Phase.BUILDING}
    net = timedelta(minutes=5) if slow else timedelta(seconds=20)
    return min(net, due) if due else net


def _received(sweep: SweepRecord, seen: Observation, config: Config, now: datetime) -> SweepRecord:
    user, channel = sweep.requester.user, sweep.requester.channel
    forbidden = launch_denial(user, channel, config)
    if seen.plan and not forbidden:  # what is not there has no size
        forbidden = size_denial(user, seen.plan, config, seen.others)
    refusal = forbidden or seen.refusal
    if not seen.plan and not refusal:  # an older sweep comes first
        return sweep
    sweep = with_entry(
        sweep,
        AuditEntry(at=now, user=user, name=sweep.requester.user_name, action=Action.LAUNCH, refused=refusal),
    )
    if seen.plan and not refusal:
        return sweep.to(Phase.OPENING, now, plan=seen.plan)
    return refuse(sweep, refusal, now, allowed=not forbidden)


def refuse(sweep: SweepRecord, why: str, now: datetime, *, allowed: bool = True) -> SweepRecord:
    """It could not start; the person is told privately."""
    requester, kind = sweep.requester, EventKind.REFUSED if allowed else EventKind.NOT_ALLOWED
    event = Event(kind=kind, text=why, to_user=requester.user, response_url=requester.response_url)
    return sweep.to(Phase.REFUSED, now, event, reason=why)


def not_extended(sweep: SweepRecord, why: str, now: datetime) -> SweepRecord:
    """Katib refused more trials; the sweep stays as it had ended."""
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
    failed = next((b for b in seen.builds if b.ended_in_vain and b.is_own(sweep.build_uids)), None)
    sweep = replace(sweep, build_uids=sweep.build_uids | running, digests=digests)
    if failed:
        return fail(sweep, "image build failed", now, build_failed(failed))
    if not sweep.build_began:
        return sweep.enqueue(build_started(seen), build_began=now)
    trouble = next((b.trouble for b in seen.builds if b.running and b.trouble), None)
    return _waits(sweep, trouble)


def _waits(sweep: SweepRecord, trouble: Diagnosis | None) -> SweepRecord:
    """Of a build that has not started: once in the thread, and in the parent as long as it lasts."""
    if trouble is None:
        return replace(sweep, build_trouble="")
    fix = f" *Fix:* {trouble.fix}" if trouble.fix else ""
    sweep = replace(sweep, build_trouble=f"{trouble.text}{fix}")
    return _tell_once(sweep, EventKind.BUILD_WAITING, replace(trouble, text=sweep.build_trouble))


def submitted(sweep: SweepRecord) -> SweepRecord:
    """Katib has the experiment."""
    return sweep if sweep.submitted else sweep.enqueue(Event(kind=EventKind.SUBMITTED), submitted=True)


def _submitted(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    if seen.foreign:
        return fail(sweep, f"a Katib experiment named {sweep.id} already exists", now)
    return submitted(sweep) if seen.experiment else sweep


def _proving(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    if sweep.phase is not Phase.PENDING:
        return sweep
    started = next((p for p in seen.pods if p.running_since and not p.abandoned), None)
    done = next((t for t in seen.trials if t.state is TrialState.SUCCEEDED), None)
    if started or done:
        trial = started.job if started else done.name if done else ""
        failed = sum(t.state in {TrialState.FAILED, TrialState.NO_METRICS} for t in seen.trials)
        running = Event(kind=EventKind.FIRST_TRIAL_RUNNING, trial=trial, more=failed)
        return sweep.to(Phase.RUNNING, now, running)
    return sweep


def _running(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Also while proving: a first trial may crash, and a sweep may end, before a pod is seen running."""
    if sweep.phase not in {Phase.PENDING, Phase.RUNNING} or not sweep.submitted or sweep.plan is None:
        return sweep
    if seen.experiment is None:
        return fail(sweep, "the Katib experiment was deleted", now)
    space = sweep.plan.space
    sweep = _restarted(_killed(_unreported(_results(sweep, seen), seen, now), seen), seen, now)
    experiment = seen.experiment
    if seen.open:
        return replace(sweep, extending=False)
    if sweep.extending and sweep.progress.finished < space.max_trials:
        return sweep  # the old end is still shown
    if seen.live and _may_finish(space, experiment):
        return sweep
    if experiment.state is ExperimentState.SUCCEEDED:
        reason = success_reason(sweep, experiment)
        return sweep.to(Phase.STOPPING, now, ending=Phase.SUCCEEDED, reason=reason)
    return fail(sweep, failure_reason(experiment, sweep.progress), now)


def _results(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    before, progress = sweep.progress.best, _progress(sweep, seen)
    sweep = replace(sweep, progress=progress)
    if progress.best and (before is None or progress.best.value != before.value):
        sweep = sweep.enqueue(Event(kind=EventKind.BETTER, result=progress.best))
    return sweep


def _unreported(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Trials that trained to the end and whose metrics never came: Katib asks for ever, then trains anew."""
    late = {j.name: now - j.ended for j in seen.jobs if j.state is JobState.COMPLETE and j.ended}
    given_up = {t.name: "" for t in seen.live if late.get(t.name, GIVEN_UP) > GIVEN_UP}
    return replace(sweep, to_kill=given_up | sweep.to_kill)


def _killed(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    """Said when the trial's pods are gone, and not before."""
    for trial, user in sweep.to_kill.items():
        if trial not in seen.held:
            rest = {t: u for t, u in sweep.to_kill.items() if t != trial}
            sweep = sweep.enqueue(Event(kind=EventKind.TRIAL_KILLED, trial=trial, by=user), to_kill=rest)
    return sweep


def _restarted(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Trials whose metrics nothing would read get a new pod: Katib makes a deleted Job again.

    One that waits for its image does so once, to leave the second time for when the image has come.
    """
    live = {t.name for t in seen.live} - sweep.to_kill.keys()
    active = {j.uid for j in seen.active_jobs} - sweep.restarted.keys()
    for pod in seen.pods:
        if pod.job not in live or pod.job_uid not in active or pod.deleted or not pod.abandoned:
            continue
        times = list(sweep.restarted.values()).count(pod.job)
        once = 1 if may_pass(*pod.waiting) and now - pod.abandoned > PULLING else 0
        if times < (RESTARTS if pod.running_since else once):
            event = Event(kind=EventKind.TRIAL_RESTARTED, trial=pod.job, detail=_pull_error(sweep, pod))
            sweep = sweep.enqueue(event, restarted=sweep.restarted | {pod.job_uid: pod.job})
    return sweep


def _pull_error(sweep: SweepRecord, pod: Pod) -> str:
    known = sweep.health
    return pod.waiting[1] or (known.detail if known and known.trial == pod.job else "")


def _may_finish(space: SearchSpace, experiment: Experiment) -> bool:
    """Whether trials that still run when the experiment is over are waited for, and not ended."""
    return experiment.reason == DRAINED or (space.finish_running and experiment.reason == GOAL_REACHED)


def _stopping(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    if sweep.ending is None:
        return sweep
    if not _gpus_free(sweep, seen):
        return _tell_stuck(sweep, seen) if now - sweep.since > _patience(sweep) else sweep
    return sweep.to(sweep.ending, now, *failed_alike(sweep), *end_events(sweep, sweep.ending))


def _patience(sweep: SweepRecord) -> timedelta:
    return STUCK_AFTER + timedelta(seconds=grace_of(sweep.plan.experiment) if sweep.plan else 0)


def _tell_stuck(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    building = [pod for build in seen.unwanted_builds(sweep.image) for pod in build.alive]
    alive = [pod for pod in (*seen.pods, *building) if not pod.finished]
    pods = [f"{pod.name} on {pod.node or 'no node'}" for pod in alive]
    if not pods or EventKind.STUCK in sweep.sent_keys:
        return sweep
    event = Event(kind=EventKind.STUCK, text=", ".join(pods[:10]))
    return sweep.enqueue(event, sent_keys=(*sweep.sent_keys, EventKind.STUCK))


def _gpus_free(sweep: SweepRecord, seen: Observation) -> bool:
    """Nothing runs for this sweep, and nothing can start any more."""
    return not (seen.open or seen.held or seen.unwanted_builds(sweep.image))


def _tell_once(sweep: SweepRecord, kind: EventKind, diagnosis: Diagnosis | None) -> SweepRecord:
    if diagnosis is None:
        return sweep
    key = f"{kind}/{diagnosis.key}"
    if key in sweep.sent_keys:
        return sweep
    event = Event(kind=kind, text=diagnosis.text, detail=diagnosis.detail, trial=diagnosis.trial)
    return sweep.enqueue(event, sent_keys=(*sweep.sent_keys, key))


def _progress(sweep: SweepRecord, seen: Observation) -> Progress:
    if not seen.trials or sweep.plan is None:
        return sweep.progress
    states = [t.state for t in seen.trials]
    return Progress(
        running=sum(t.name in seen.running for t in seen.live),
        waiting=sum(t.name not in seen.running for t in seen.live),
        succeeded=states.count(TrialState.SUCCEEDED),
        failed=states.count(TrialState.FAILED) + states.count(TrialState.NO_METRICS),
        killed=states.count(TrialState.KILLED),
        best=_best(sweep.plan.space, seen.trials, sweep.progress.best),
    )


def _best(space: SearchSpace, trials: tuple[Trial, ...], before: Result | None) -> Result | None:
    """Our own, not Katib's currentOptimalTrial: that one stays at NaN for ever once it has seen it.

    Of equal ones that which was told before stays.
    """
    sign = -1 if space.goal is Goal.MAXIMIZE else 1
    finite = [(sign * t.value, t) for t in trials if t.value is not None]
    if not finite:
        return None
    told = before.trial if before else ""
    best = min(finite, key=lambda pair: (pair[0], pair[1].name != told))[1]
    return Result(trial=best.name, value=best.value or 0.0, parameters=best.parameters)
