"""The life of a sweep, on one page.

    received -> opening -> building -> proving -> running -> stopping -> succeeded | failed | cancelled
        \\           \\                                        /
         `-> refused `-> refused       (cancelled from anywhere: straight to stopping)

1. received: git is asked for the commit and the space; a mistake is told to the person privately: refused.
2. opening: the thread is opened in the channel. Nothing exists in the cluster but the durable record.
3. building: the registry has the image, or one Job per commit makes it, shared by every sweep that needs it.
4. proving: the experiment is submitted, no trial was seen running. Katib says "Running" for waiting Jobs too.
5. running: counts and better results are told.
6. stopping: Katib starts nothing more; what is live is ended; nobody says the end before the GPUs are free.

`advance` says what the record becomes; `chores` says which objects the present phase wants changed. Both only
look and answer, so asking twice does no harm. Chores come from the phase, never from the change of phase: a
worker that dies between the two is picked up by the next turn.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bot.access import may
from bot.config import Config
from bot.health import Diagnosis, no_metrics
from bot.models import (
    Ask,
    Event,
    EventKind,
    Goal,
    Phase,
    Progress,
    Result,
    SearchSpace,
    SweepPlan,
    SweepRecord,
)
from bot.planning import image_with
from k8s.jobs import Job, JobState
from k8s.katib import Experiment, ExperimentState, Trial, TrialState, ended, killed, with_image
from k8s.objects import Manifest, Ref
from k8s.pods import Pod


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the outside says about one sweep, as far as its phase asks."""

    asks: tuple[Ask, ...] = ()
    plan: SweepPlan | None = None  # received: what git and the space file lead to
    refusal: str = ""  # received: or why they lead nowhere
    digest: str | None = None  # building: of the image in the registry
    build: Job | None = None
    build_shared: bool = False  # other sweeps wait for the same build
    build_trouble: Diagnosis | None = None
    experiment: Experiment | None = None
    trials: tuple[Trial, ...] = ()
    jobs: tuple[Job, ...] = ()  # of trials
    pods: tuple[Pod, ...] = ()  # of trials
    trouble: tuple[Diagnosis, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Patch:
    ref: Ref
    body: Manifest
    subresource: str = ""


@dataclass(frozen=True, kw_only=True)
class Delete:
    ref: Ref
    uid: str  # only this one, not a later namesake


@dataclass(frozen=True, kw_only=True)
class Chores:
    """Patches come before deletions: a Job deleted while its trial is live would be made again."""

    patch: tuple[Patch, ...] = ()
    delete: tuple[Delete, ...] = ()
    create: Manifest | None = None


def advance(sweep: SweepRecord, seen: Observation, config: Config, now: datetime) -> SweepRecord:
    sweep = _hear(sweep, seen.asks, config)
    if sweep.cancelled_by and not (sweep.phase.final or sweep.phase is Phase.STOPPING):
        stopping = Event(kind=EventKind.STOPPING)
        return sweep.to(Phase.STOPPING, now, stopping, ending=Phase.CANCELLED, reason="cancelled")
    match sweep.phase:
        case Phase.RECEIVED:
            return _received(sweep, seen, now)
        case Phase.OPENING:
            return sweep.to(Phase.BUILDING, now) if sweep.thread else sweep
        case Phase.BUILDING:
            return _building(sweep, seen, now)
        case Phase.PROVING:
            return _running(_proving(_submitted(sweep, seen), seen, now), seen, now)
        case Phase.RUNNING:
            return _running(sweep, seen, now)
        case Phase.STOPPING:
            return _stopping(replace(sweep, progress=_progress(sweep, seen)), seen, now)
        case _:
            return sweep


def chores(sweep: SweepRecord, seen: Observation, now: datetime) -> Chores:
    plan = sweep.plan
    if plan is None:
        return Chores()
    match sweep.phase:
        case Phase.BUILDING if _old_failure(sweep, seen.build):
            return Chores(delete=_delete_build(plan, seen.build))
        case Phase.BUILDING if seen.build is None:
            return Chores(create=plan.build)
        case Phase.PROVING if seen.experiment is None and sweep.image and not sweep.submitted:
            return Chores(create=with_image(plan.experiment, sweep.image))
        case Phase.STOPPING | Phase.CANCELLED | Phase.FAILED | Phase.SUCCEEDED:
            return _ending_chores(sweep, plan, seen, now)
        case _:
            return Chores()


def look_again(before: SweepRecord, after: SweepRecord) -> timedelta | None:
    """When to look without being woken: at once after a step, else as a net under the watches."""
    if after.phase.final:
        return None
    if after.phase is not before.phase or after.thread != before.thread:
        return timedelta(0)
    slow = after.phase in {Phase.RUNNING, Phase.BUILDING}
    return timedelta(minutes=5) if slow else timedelta(seconds=20)


def _hear(sweep: SweepRecord, asks: tuple[Ask, ...], config: Config) -> SweepRecord:
    for ask in asks:
        if sweep.phase.final or sweep.cancelled_by:
            text = f"`{sweep.id}` has already {'ended' if sweep.phase.final else 'been cancelled'}."
            sweep = sweep.says(_privately(ask, text))
        elif refusal := may(ask.user, ask.act, sweep, config):
            sweep = sweep.says(_privately(ask, refusal))
        else:
            sweep = replace(sweep, cancelled_by=ask.user)
    return sweep


def _privately(ask: Ask, text: str) -> Event:
    return Event(kind=EventKind.NOT_ALLOWED, text=text, to_user=ask.user, response_url=ask.response_url)


def _received(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    if seen.plan:
        return sweep.to(Phase.OPENING, now, plan=seen.plan)
    return refuse(sweep, seen.refusal, now)


def refuse(sweep: SweepRecord, why: str, now: datetime) -> SweepRecord:
    """It could not start; the person is told privately."""
    asker = sweep.asker
    event = Event(kind=EventKind.REFUSED, text=why, to_user=asker.user, response_url=asker.response_url)
    return sweep.to(Phase.REFUSED, now, event, reason=why)


def fail(sweep: SweepRecord, why: str, now: datetime, *events: Event) -> SweepRecord:
    return sweep.to(Phase.STOPPING, now, *events, ending=Phase.FAILED, reason=why)


def _building(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    if seen.digest and sweep.plan:
        return sweep.to(Phase.PROVING, now, _built(sweep, now), image=image_with(sweep.plan, seen.digest))
    if seen.build is None or _old_failure(sweep, seen.build):
        if sweep.build_began:
            return sweep
        return sweep.says(Event(kind=EventKind.BUILD_STARTED), build_began=now)
    if seen.build.state is JobState.FAILED:
        detail = seen.build_trouble.detail if seen.build_trouble else ""
        event = Event(kind=EventKind.BUILD_FAILED, text=seen.build.message, detail=detail)
        return fail(sweep, "the image could not be built", now, event)
    if seen.build.state is JobState.COMPLETE:
        why = "the build ended well, but the registry does not have its image"
        return fail(sweep, why, now, Event(kind=EventKind.BUILD_FAILED, text=why))
    sweep = replace(sweep, build_uid=seen.build.uid)
    if not sweep.build_began:
        return sweep.says(Event(kind=EventKind.BUILD_JOINED), build_began=now)
    return _tell_once(sweep, EventKind.BUILD_WAITING, seen.build_trouble)


def _built(sweep: SweepRecord, now: datetime) -> Event:
    if sweep.build_began is None:
        return Event(kind=EventKind.BUILD_REUSED)
    return Event(kind=EventKind.BUILD_DONE, seconds=(now - sweep.build_began).total_seconds())


def _old_failure(sweep: SweepRecord, build: Job | None) -> bool:
    """A build that failed before this sweep came: cleared away and tried again."""
    return build is not None and build.state is JobState.FAILED and build.uid != sweep.build_uid


def _submitted(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    if seen.experiment and not sweep.submitted:
        return sweep.says(Event(kind=EventKind.SUBMITTED), submitted=True)
    return sweep


def _proving(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    started = next((p for p in seen.pods if p.running_since), None)
    done = next((t for t in seen.trials if t.state is TrialState.SUCCEEDED), None)
    if started or done:
        trial = started.job if started else done.name if done else ""
        return sweep.to(Phase.RUNNING, now, Event(kind=EventKind.FIRST_TRIAL_RUNNING, trial=trial))
    for diagnosis in seen.trouble:
        if diagnosis.key != "crash":
            sweep = _tell_once(sweep, EventKind.FIRST_TRIAL_WAITING, diagnosis)
    return sweep


def _running(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Also while proving: a first trial may crash, and a sweep may end, before a pod is seen running."""
    if sweep.phase not in {Phase.PROVING, Phase.RUNNING} or not sweep.submitted:
        return sweep
    if seen.experiment is None:
        return fail(sweep, "somebody deleted the Katib experiment", now)
    before, progress = sweep.progress.best, _progress(sweep, seen)
    sweep = replace(sweep, progress=progress)
    for diagnosis in seen.trouble:
        if diagnosis.key == "crash":
            sweep = _tell_once(sweep, EventKind.TRIAL_FAILED, diagnosis)
    mute = next((t for t in seen.trials if t.state is TrialState.NO_METRICS), None)
    if mute and sweep.plan:
        sweep = _tell_once(sweep, EventKind.TRIAL_FAILED, no_metrics(mute.name, sweep.plan.space.metric))
    if progress.best and progress.best != before:
        sweep = sweep.says(Event(kind=EventKind.BETTER, result=progress.best))
    match seen.experiment.state:
        case ExperimentState.SUCCEEDED:
            reason = _success_words(seen.experiment, progress)
            return sweep.to(Phase.STOPPING, now, ending=Phase.SUCCEEDED, reason=reason)
        case ExperimentState.FAILED:
            return fail(sweep, _failure_words(seen.experiment, progress), now)
        case _:
            return sweep


def _stopping(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    if sweep.ending is None or not _gpus_free(sweep, seen):
        return sweep
    kind = {
        Phase.SUCCEEDED: EventKind.SUCCEEDED,
        Phase.FAILED: EventKind.FAILED,
        Phase.CANCELLED: EventKind.CANCELLED,
    }[sweep.ending]
    return sweep.to(sweep.ending, now, Event(kind=kind))


def _gpus_free(sweep: SweepRecord, seen: Observation) -> bool:
    """Nothing runs for this sweep, and nothing can start any more."""
    open_experiment = seen.experiment is not None and seen.experiment.state is ExperimentState.RUNNING
    live = any(t.state is TrialState.LIVE for t in seen.trials)
    pods = any(not p.finished for p in seen.pods)
    jobs = any(j.state is JobState.ACTIVE for j in seen.jobs)
    return not (open_experiment or live or pods or jobs or _unwanted_build(sweep, seen))


def _unwanted_build(sweep: SweepRecord, seen: Observation) -> bool:
    running = seen.build is not None and seen.build.state is JobState.ACTIVE
    return running and sweep.image is None and not seen.build_shared


def _ending_chores(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> Chores:
    """First no new trials, then the running ones: in one turn, a trial could start between the two."""
    if seen.experiment and seen.experiment.state is ExperimentState.RUNNING:
        patch = ended(seen.experiment.raw, "SweepbotStopped", f"Sweepbot: {sweep.reason}", now)
        return Chores(patch=(Patch(ref=plan.experiment_ref, body=patch, subresource="status"),))
    live = [t for t in seen.trials if t.state is TrialState.LIVE]
    active = {j.name: j for j in seen.jobs if j.state is JobState.ACTIVE}
    namespace = plan.experiment_ref.namespace
    patches = tuple(
        Patch(
            ref=Ref("Trial", namespace, t.name),
            body=killed(t.raw, f"Sweepbot: {sweep.reason}", now),
            subresource="status",
        )
        for t in live
    )
    jobs = tuple(Delete(ref=Ref("Job", namespace, j.name), uid=j.uid) for j in active.values())
    builds = _delete_build(plan, seen.build) if _unwanted_build(sweep, seen) else ()
    return Chores(patch=patches, delete=jobs + builds)


def _delete_build(plan: SweepPlan, build: Job | None) -> tuple[Delete, ...]:
    return (Delete(ref=plan.build_ref, uid=build.uid),) if build else ()


def _tell_once(sweep: SweepRecord, kind: EventKind, diagnosis: Diagnosis | None) -> SweepRecord:
    if diagnosis is None:
        return sweep
    key = f"{kind}/{diagnosis.key}"
    if key in sweep.told:
        return sweep
    event = Event(kind=kind, text=diagnosis.text, detail=diagnosis.detail, trial=diagnosis.trial)
    return sweep.says(event, told=(*sweep.told, key))


def _progress(sweep: SweepRecord, seen: Observation) -> Progress:
    if not seen.trials or sweep.plan is None:
        return sweep.progress
    states = [t.state for t in seen.trials]
    running = {p.job for p in seen.pods if p.running_since and not p.finished}
    live = [t for t in seen.trials if t.state is TrialState.LIVE]
    return Progress(
        running=sum(t.name in running for t in live),
        waiting=sum(t.name not in running for t in live),
        succeeded=states.count(TrialState.SUCCEEDED),
        failed=states.count(TrialState.FAILED) + states.count(TrialState.NO_METRICS),
        killed=states.count(TrialState.KILLED),
        best=_best(sweep.plan.space, seen.trials),
    )


def _best(space: SearchSpace, trials: tuple[Trial, ...]) -> Result | None:
    """Our own, not Katib's currentOptimalTrial: that one stays at NaN for ever once it has seen it."""
    sign = -1 if space.goal is Goal.MAXIMIZE else 1
    finite = [(sign * t.value, t) for t in trials if t.value is not None]
    if not finite:
        return None
    best = min(finite, key=lambda pair: pair[0])[1]
    return Result(trial=best.name, value=best.value or 0.0, parameters=best.parameters)


def _success_words(experiment: Experiment, progress: Progress) -> str:
    if experiment.reason == "ExperimentGoalReached":
        return "the target was reached"
    return f"{progress.finished} trials are done"


def _failure_words(experiment: Experiment, progress: Progress) -> str:
    if experiment.reason == "ExperimentFailed" or not experiment.message:
        return f"{progress.failed} trials failed"
    return f"Katib gave up: {experiment.message}"
