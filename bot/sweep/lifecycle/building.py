"""A sweep before its experiment: accept the plan or refuse the request; follow builds that run, wait, fail,
or are reused; compose their images. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from bot.core.commands import Action, AuditEntry
from bot.core.events import Event
from bot.core.plan import Role, SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.platform.config.permissions import launch_denial, size_denial
from bot.platform.config.policy import Config
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.registry.images import ImageRef
from bot.sweep.launch.plan import image_with
from bot.sweep.lifecycle import texts
from bot.sweep.model.changes import Delete, RequiredChanges
from bot.sweep.model.observation import BuildSeen, Observation
from bot.text.wording import listed
from k8s.jobs import JobState
from k8s.kaniko import with_base

BUILD_WAITING = "build_waiting"


def received(sweep: SweepRecord, seen: Observation, config: Config, now: datetime) -> SweepRecord:
    """Accept the plan, or refuse the request."""
    requester = sweep.requester
    user, channel = requester.user, requester.channel
    forbidden = launch_denial(user, channel, config)
    if seen.plan and not forbidden:
        forbidden = size_denial(user, seen.plan, config, seen.others)
    refusal = forbidden or seen.refusal
    if not seen.plan and not refusal:  # the same user's older sweep is planned first
        return sweep
    sweep = sweep.with_entry(
        AuditEntry(
            at=now,
            user=user,
            name=requester.user_name,
            action=Action.LAUNCH,
            refused=refusal,
            via=requester.via,
        )
    )
    if seen.plan and not refusal:
        return sweep.to(Phase.OPENING, now, plan=seen.plan, cluster=seen.plan.cluster)
    return refuse(sweep, refusal, now, allowed=not forbidden)


def refuse(sweep: SweepRecord, why: str, now: datetime, *, allowed: bool = True) -> SweepRecord:
    """End a sweep that can't start, with an ephemeral message to its requester."""
    event = texts.refused(sweep, why) if allowed else Event(kind="not_allowed", text=why)
    to = sweep.requester
    event = replace(event, to_user=to.user, response_url=to.response_url)
    return sweep.to(Phase.REFUSED, now, event, reason=why)


def building(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Follow the build until the image exists, or can't be built."""
    plan = sweep.plan
    if plan is None:
        return sweep
    if not plan.builds:
        return sweep.to(Phase.PENDING, now, image=plan.image_by_digest).step(image=texts.PREBUILT)
    if seen.digest:
        return _image_built(sweep, plan, seen, seen.digest, now)
    running = {b.job.name: b.job.uid for b in seen.builds if b.job and b.running}
    digests = {b.build.tag: b.digest for b in seen.builds if b.there}
    failed = next((b for b in seen.builds if b.ended_without_image and b.is_own(sweep.building.uids)), None)
    sweep = built(sweep, uids=sweep.building.uids | running, digests=digests)
    if failed:
        event = _failed(sweep, failed)
        why = failed.trouble.cause if failed.trouble else ""  # the fix is in the thread
        what = f"Image build of {plan.branch.branch}" if plan.branch else "Image build"
        told = sweep.enqueue_once(texts.BUILD_FAILED, event)
        return told.fail(f"{what} failed{f': {why}' if why else ''}", now)
    if not sweep.building.started:
        return built(sweep.step(image=_started(sweep, seen)), started=now)
    trouble = next((b.trouble for b in seen.builds if b.running and b.trouble), None)
    if trouble is None and any(b.started for b in seen.builds):
        return _runs(sweep)
    return _waits(sweep, trouble)


def _image_built(
    sweep: SweepRecord, plan: SweepPlan, seen: Observation, digest: str, now: datetime
) -> SweepRecord:
    """Submit the experiment next, or first build the image of the next branch."""
    if plan.branches:
        plan = plan.after_build(digest)
        sweep = built(replace(sweep, plan=plan), started=None)
        if plan.branch:
            return sweep
    return sweep.to(Phase.PENDING, now, image=image_with(plan, digest)).step(image=_finished(sweep, seen))


def built(sweep: SweepRecord, **changes: object) -> SweepRecord:
    """Return the record with what is known of the build changed."""
    return replace(sweep, building=replace(sweep.building, **changes))  # type: ignore[arg-type]


def _runs(sweep: SweepRecord) -> SweepRecord:
    """Report the start of a build whose wait was reported."""
    left = tuple(key for key in sweep.sent_keys if not key.startswith(f"{BUILD_WAITING}/"))
    events = () if left == sweep.sent_keys else (texts.BUILD_RUNS,)
    return built(sweep.enqueue(*events, sent_keys=left), trouble="")


def _waits(sweep: SweepRecord, trouble: Diagnosis | None) -> SweepRecord:
    """Report why a build hasn't started: once in the thread, and in the parent while it lasts."""
    if trouble is None:
        return built(sweep, trouble="")
    fix = f" *Fix:* {trouble.fix}" if trouble.fix else ""
    why = f"{trouble.text}{fix}"
    event = texts.build_waiting(why, trouble.detail)
    return built(sweep, trouble=why).enqueue_once(f"{BUILD_WAITING}/{trouble.key}", event)


def _started(sweep: SweepRecord, seen: Observation) -> str:
    """Return the step with the images to build and the reused ones."""
    missing = [b for b in seen.builds if not b.there]
    reused = _reused(b for b in seen.builds if b.there)
    what = "; ".join(filter(None, (listed(b.build.role.label for b in missing), reused)))
    if missing and all(b.running for b in missing):
        return texts.build_joined(what)
    return texts.build_started(sweep, what)


def _failed(sweep: SweepRecord, failed: BuildSeen) -> Event:
    """Return the event with the cause, and the pod and container whose log is attached."""
    if failed.job and failed.job.state is JobState.COMPLETE:
        text = (
            "The build succeeded, but its pod didn't report the image's digest, or the registry doesn't "
            "have the image."
        )
        return texts.build_failed(sweep, text)
    text, detail = (failed.trouble.text, failed.trouble.detail) if failed.trouble else ("", "")
    return replace(texts.build_failed(sweep, text, detail), pod=failed.pod, container=failed.container)


def _finished(sweep: SweepRecord, seen: Observation) -> str:
    """Return the step with the images built for this sweep and the reused ones."""
    own = [b for b in seen.builds if b.is_own(sweep.building.uids)]
    if not own:
        return texts.IMAGE_REUSED
    reused = _reused(b for b in seen.builds if b not in own and b.build.tag in sweep.building.digests)
    return texts.build_done(", ".join(filter(None, (reused, *map(_built_in, own)))))


def _built_in(one: BuildSeen) -> str:
    seconds = one.job.seconds if one.job else None
    return f"{one.build.role.label} built" + (f" in {seconds:.0f} s" if seconds is not None else "")


def _reused(builds: Iterable[BuildSeen]) -> str:
    roles = listed(b.build.role.label for b in builds)
    return f"{roles} reused" if roles else ""


def building_changes(sweep: SweepRecord, plan: SweepPlan, seen: Observation) -> RequiredChanges:
    """Create each Job once the image below it exists; compose the sweep's image once all parts exist."""
    if seen.digest:  # of the branch before
        return RequiredChanges()
    there = {one.build.tag: one.digest for one in seen.builds if one.there}
    old = [b for b in seen.builds if b.ended_without_image and not b.is_own(sweep.building.uids)]
    new = [b.build for b in seen.builds if b.there is False and b.job is None]
    return RequiredChanges(
        delete=tuple(Delete(ref=b.build.ref, uid=b.job.uid, build=True) for b in old if b.job),
        create=tuple(
            with_base(b.job, b.needs, there[b.needs]) if b.needs else b.job
            for b in new
            if not b.needs or b.needs in there
        ),
        compose=_composition(plan, there) if seen.builds and len(there) == len(plan.builds) else None,
    )


def _composition(plan: SweepPlan, there: Mapping[str, str]) -> tuple[ImageRef, ImageRef, ImageRef] | None:
    """Name both parts by digest, because a tag can move."""
    below, above = plan.build(Role.DEPENDENCIES), plan.build(Role.CODE)
    if below is None or above is None:
        return None
    to = ImageRef(plan.image_repository, plan.image_tag)
    return to, ImageRef(below.repository, there[below.tag]), ImageRef(above.repository, there[above.tag])
