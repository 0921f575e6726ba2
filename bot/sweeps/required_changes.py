"""What a sweep's present phase wants changed in the cluster. Pure.

Chores come from the phase, never from the change of phase: a worker that dies between the two is picked up by
the next turn, which asks again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from bot.core.plan import Build, Role, SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.registry.images import Place
from bot.sweeps.observation import Observation
from k8s.jobs import Job
from k8s.kaniko import with_base
from k8s.katib.patches import drained, ended, killed, more_trials
from k8s.katib.spec import with_image
from k8s.katib.status import Trial, TrialState
from k8s.objects import Manifest, Ref


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
class RequiredChanges:
    """Patches come before deletions: a Job deleted while its trial is live would be made again."""

    patch: tuple[Patch, ...] = ()
    delete: tuple[Delete, ...] = ()
    create: tuple[Manifest, ...] = ()
    compose: tuple[Place, Place, Place] | None = None  # what to make of dependencies, and code on top


def required_changes(sweep: SweepRecord, seen: Observation, now: datetime) -> RequiredChanges:
    plan = sweep.plan
    if plan is None:
        return RequiredChanges()
    match sweep.phase:
        case Phase.BUILDING:
            return _building(sweep, plan, seen)
        case Phase.PENDING if seen.experiment is None and sweep.image and not sweep.submitted:
            return RequiredChanges(create=(with_image(plan.experiment, sweep.image),))
        case Phase.PENDING | Phase.RUNNING:
            return _running(sweep, plan, seen, now)
        case Phase.STOPPING | Phase.CANCELLED | Phase.FAILED | Phase.SUCCEEDED:
            return _ending(sweep, plan, seen, now)
        case _:
            return RequiredChanges()


def _building(sweep: SweepRecord, plan: SweepPlan, seen: Observation) -> RequiredChanges:
    """Each Job as soon as what it needs is there, at the same time as others; all there: put together."""
    there = {one.build.tag: one.digest for one in seen.builds if one.there}
    old = [b for b in seen.builds if b.ended_in_vain and not b.is_own(sweep.build_uids)]
    new = [b.build for b in seen.builds if b.there is False and b.job is None]
    return RequiredChanges(
        delete=tuple(Delete(ref=b.build.ref, uid=b.job.uid) for b in old if b.job),
        create=tuple(_job(b, there) for b in new if not b.needs or b.needs in there),
        compose=_composition(plan, there) if seen.builds and len(there) == len(plan.builds) else None,
    )


def _job(build: Build, there: Mapping[str, str]) -> Manifest:
    return with_base(build.job, build.needs, there[build.needs]) if build.needs else build.job


def _composition(plan: SweepPlan, there: Mapping[str, str]) -> tuple[Place, Place, Place] | None:
    """Both by digest: what was recorded is what is put together."""
    below, above = plan.build(Role.DEPENDENCIES), plan.build(Role.CODE)
    if below is None or above is None:
        return None
    to = Place(plan.image_repository, plan.image_tag)
    return to, Place(below.repository, there[below.tag]), Place(above.repository, there[above.tag])


def _running(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> RequiredChanges:
    patches: list[Patch] = []
    if seen.experiment and seen.open and sweep.drained_by:
        patches.append(_status(plan.experiment_ref, drained(seen.experiment.raw, "Sweepbot: drained", now)))
    if sweep.extending and seen.experiment and seen.experiment.max_trials < plan.space.max_trials:
        patches.append(Patch(ref=plan.experiment_ref, body=more_trials(plan.space.max_trials)))
    doomed = [t for t in seen.live if t.name in sweep.to_kill]
    # Katib makes a deleted Job anew as long as it has not read that the trial was killed.
    over = {t.name for t in seen.trials if t.state is TrialState.KILLED}
    unwanted = over | set(sweep.to_kill)
    jobs = [j for j in seen.active_jobs if j.name in unwanted or j.uid in sweep.restarted]
    kills = _kills(doomed, plan, "ended by request", now)
    return RequiredChanges(patch=(*patches, *kills), delete=_deletions(jobs, plan))


def _ending(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> RequiredChanges:
    """First no new trials, then the running ones: in one turn, a trial could start between the two."""
    if seen.experiment and seen.open:
        body = ended(seen.experiment.raw, f"Sweepbot: {sweep.reason}", now)
        return RequiredChanges(patch=(_status(plan.experiment_ref, body),))
    jobs = _deletions(seen.active_jobs, plan)
    left = seen.unwanted_builds(sweep.image)
    builds = [Delete(ref=b.build.ref, uid=b.job.uid) for b in left if b.job and b.running]
    return RequiredChanges(patch=_kills(seen.live, plan, sweep.reason, now), delete=(*jobs, *builds))


def _kills(trials: Iterable[Trial], plan: SweepPlan, why: str, now: datetime) -> tuple[Patch, ...]:
    namespace = plan.experiment_ref.namespace
    return tuple(
        _status(Ref("Trial", namespace, t.name), killed(t.raw, f"Sweepbot: {why}", now)) for t in trials
    )


def _deletions(jobs: Iterable[Job], plan: SweepPlan) -> tuple[Delete, ...]:
    namespace = plan.experiment_ref.namespace
    return tuple(Delete(ref=Ref("Job", namespace, j.name), uid=j.uid) for j in jobs)


def _status(ref: Ref, body: Manifest) -> Patch:
    return Patch(ref=ref, body=body, subresource="status")
