"""List the changes to the cluster that a sweep's current phase requires. Pure.

They depend on the phase, never on a transition: if a worker dies after saving a phase, the next reconcile
returns the same changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from bot.core.plan import Build, Role, SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.lifecycle.disruptions import jobs_to_replace, reopens, trials_to_replace
from bot.lifecycle.observation import Observation
from bot.lifecycle.pace import pace_patch
from bot.lifecycle.pause import is_paused
from bot.lifecycle.queueing import queue_patches
from bot.lifecycle.trial_objects import runtimes, services
from bot.registry.images import ImageRef
from bot.results import run_tags
from k8s.jobs import Job
from k8s.kaniko import with_base
from k8s.katib.manifest import gated, with_annotations, with_image, with_variable
from k8s.katib.patches import (
    drain_experiment,
    kill_trial,
    more_trials,
    pause_experiment,
    reopen_experiment,
    resume_experiment,
    stop_experiment,
)
from k8s.katib.status import STOPPED_EARLY, Experiment, Trial, TrialState
from k8s.objects import Manifest, Ref


@dataclass(frozen=True, kw_only=True)
class Patch:
    ref: Ref
    body: Manifest
    subresource: str = ""
    optional: bool = False  # a rejection is no error: Kueue admitted the Job since it was read


@dataclass(frozen=True, kw_only=True)
class Delete:
    ref: Ref
    uid: str  # a precondition: a later object of the same name is kept
    build: bool = False  # builds run in the home cluster
    wait: bool = False  # the object stays until all of its dependents are gone


@dataclass(frozen=True, kw_only=True)
class RequiredChanges:
    """Patches come before deletions: Katib recreates the Job of a trial that is still active."""

    patch: tuple[Patch, ...] = ()
    delete: tuple[Delete, ...] = ()
    create: tuple[Manifest, ...] = ()
    compose: tuple[ImageRef, ImageRef, ImageRef] | None = None  # image, dependencies, and the code to add


def required_changes(sweep: SweepRecord, seen: Observation, now: datetime) -> RequiredChanges:
    plan = sweep.plan
    if plan is None:
        return RequiredChanges()
    match sweep.phase:
        case Phase.BUILDING:
            return _building(sweep, plan, seen)
        case Phase.PENDING if not (seen.experiment or sweep.submitted or seen.start_wait) and sweep.image:
            manifest = _submitted(sweep, plan, sweep.image)
            manifest = gated(manifest) if sweep.gated else manifest
            return RequiredChanges(create=(*services(plan), manifest))
        case Phase.PENDING | Phase.RUNNING:
            return _running(sweep, plan, seen, now)
        case Phase.STOPPING | Phase.CANCELLED | Phase.FAILED | Phase.SUCCEEDED:
            return _ending(sweep, plan, seen, now)
        case _:
            return RequiredChanges()


def _submitted(sweep: SweepRecord, plan: SweepPlan, image: str) -> Manifest:
    """Return the experiment with what was unknown when it was planned: image, thread, and MLflow page."""
    links = {"sweepbot/thread": sweep.permalink, "sweepbot/mlflow": sweep.results_url}
    manifest = with_annotations(plan.experiment, {name: url for name, url in links.items() if url})
    tags = run_tags.submitted(sweep.id, image, sweep.permalink)
    manifest = with_variable(manifest, run_tags.VARIABLE, partial(run_tags.added, tags=tags))
    return with_image(manifest, image)


def _building(sweep: SweepRecord, plan: SweepPlan, seen: Observation) -> RequiredChanges:
    """Create each Job once the image below it exists; compose the sweep's image once all parts exist."""
    there = {one.build.tag: one.digest for one in seen.builds if one.there}
    old = [b for b in seen.builds if b.ended_without_image and not b.is_own(sweep.build_uids)]
    new = [b.build for b in seen.builds if b.there is False and b.job is None]
    return RequiredChanges(
        delete=tuple(Delete(ref=b.build.ref, uid=b.job.uid, build=True) for b in old if b.job),
        create=tuple(_job(b, there) for b in new if not b.needs or b.needs in there),
        compose=_composition(plan, there) if seen.builds and len(there) == len(plan.builds) else None,
    )


def _job(build: Build, there: Mapping[str, str]) -> Manifest:
    return with_base(build.job, build.needs, there[build.needs]) if build.needs else build.job


def _composition(plan: SweepPlan, there: Mapping[str, str]) -> tuple[ImageRef, ImageRef, ImageRef] | None:
    """Name both parts by digest, because a tag can move."""
    below, above = plan.build(Role.DEPENDENCIES), plan.build(Role.CODE)
    if below is None or above is None:
        return None
    to = ImageRef(plan.image_repository, plan.image_tag)
    return to, ImageRef(below.repository, there[below.tag]), ImageRef(above.repository, there[above.tag])


def _running(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> RequiredChanges:
    # Trials are stopped after the experiment is paused, so that no others start.
    all_stop = bool(sweep.paused_at) and sweep.pause_now and is_paused(sweep, seen)
    doomed = [t for t in seen.live if all_stop or t.name in sweep.to_kill]
    # Katib recreates a deleted Job until it has read the Killed condition.
    stopped = {t.name for t in seen.trials if t.killed}
    unwanted = stopped | sweep.to_kill.keys() | sweep.ending_early.keys()
    jobs = [j for j in seen.active_jobs if j.name in unwanted or j.uid in sweep.restarted]
    early = [t for t in seen.live if t.name in sweep.ending_early and t not in doomed]
    kills = _kills(doomed, plan, "stopped by request", now)
    kills += _kills(early, plan, "stopped early", now, reason=STOPPED_EARLY)
    experiment = None if seen.start_wait else seen.experiment
    steered = _steered(sweep, plan, experiment, seen, now) if experiment else ()
    queue = (
        Patch(ref=ref, body=body, optional=True)
        for ref, body in queue_patches(sweep, seen, plan.experiment_ref.namespace)
    )
    patches = (*steered, *kills, *queue)
    deletions = (*_deletions(jobs, plan), *_replaced(sweep, plan, seen))
    return RequiredChanges(patch=patches, delete=deletions, create=runtimes(plan, seen, now))


def _replaced(sweep: SweepRecord, plan: SweepPlan, seen: Observation) -> Iterator[Delete]:
    """Yield the Jobs and trials that Katib then creates again, after a disruption."""
    namespace = plan.experiment_ref.namespace
    for job in jobs_to_replace(sweep, seen):
        yield Delete(ref=Ref(job.kind, namespace, job.name), uid=job.uid, wait=True)
    for trial in trials_to_replace(sweep, seen):
        yield Delete(ref=Ref("Trial", namespace, trial.name), uid=trial.raw["metadata"]["uid"])


def _steered(
    sweep: SweepRecord, plan: SweepPlan, experiment: Experiment, seen: Observation, now: datetime
) -> tuple[Patch, ...]:
    """Return the patch that drains, pauses, reopens, or extends the experiment; at most one per reconcile."""
    ref, raw = plan.experiment_ref, experiment.raw
    if reopens(sweep, seen):
        failed = sum(trial.state is TrialState.FAILED for trial in seen.trials)
        return (_status(ref, reopen_experiment(raw, len(seen.trials), failed, now)),)
    if seen.open and sweep.draining:
        return (_status(ref, drain_experiment(raw, "Sweepbot: drained", now)),)
    if pace := pace_patch(sweep, seen):
        return (Patch(ref=ref, body=pace, optional=not sweep.extending),)
    if seen.open and sweep.paused_at:
        return (_status(ref, pause_experiment(raw, now)),)
    if is_paused(sweep, seen):
        return (_status(ref, resume_experiment(raw, now)),) if sweep.resuming else ()
    if sweep.extending and not plan.space.auto and experiment.max_trials < plan.space.max_trials:
        return (_more_trials(plan, experiment),)
    return ()


def _ending(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> RequiredChanges:
    """End the experiment, then stop its trials in a later reconcile: a trial could start between the two."""
    if seen.experiment and seen.open:
        body = stop_experiment(seen.experiment.raw, f"Sweepbot: {sweep.reason}", now)
        return RequiredChanges(patch=(_status(plan.experiment_ref, body),))
    jobs = _deletions(seen.active_jobs, plan)
    left = seen.unwanted_builds(sweep.image)
    builds = [Delete(ref=b.build.ref, uid=b.job.uid, build=True) for b in left if b.job and b.running]
    return RequiredChanges(patch=_kills(seen.live, plan, sweep.reason, now), delete=(*jobs, *builds))


def _more_trials(plan: SweepPlan, experiment: Experiment) -> Patch:
    space = plan.space
    counts = {"total": space.max_trials, "parallel": space.parallel, "max_failed": space.max_failed}
    return Patch(ref=plan.experiment_ref, body=more_trials(experiment.raw, **counts))


def _kills(
    trials: Iterable[Trial], plan: SweepPlan, why: str, now: datetime, **reason: str
) -> tuple[Patch, ...]:
    namespace = plan.experiment_ref.namespace
    return tuple(
        _status(Ref("Trial", namespace, t.name), kill_trial(t.raw, f"Sweepbot: {why}", now, **reason))
        for t in trials
    )


def _deletions(jobs: Iterable[Job], plan: SweepPlan) -> tuple[Delete, ...]:
    namespace = plan.experiment_ref.namespace
    return tuple(Delete(ref=Ref(j.kind, namespace, j.name), uid=j.uid) for j in jobs)


def _status(ref: Ref, body: Manifest) -> Patch:
    return Patch(ref=ref, body=body, subresource="status")
