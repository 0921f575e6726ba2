"""Observe the builds of one sweep in the cluster and the registry, with as few calls as possible, and when to
look for the cause of one that doesn't start; pin a prebuilt image by digest (`image=`), or refuse it.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from functools import partial

from bot.core.errors import UserError
from bot.core.plan import Build, Role, SweepPlan
from bot.core.record import SweepRecord
from bot.core.space import SearchSpace
from bot.platform.config.policy import prebuilt_image
from bot.platform.registry.client import Registry, UnknownHostError
from bot.platform.registry.images import ImageRef
from bot.platform.runtime.parser_thread import run_in_parser_thread
from bot.sweep.builds.failures import explain
from bot.sweep.builds.provenance import record, recorded
from bot.sweep.builds.rules_building import diagnose_build
from bot.sweep.clients import SweepClients
from bot.sweep.model.engine import Reader
from bot.sweep.model.observation import BuildSeen, Observation
from k8s import kaniko
from k8s.api.cache import CacheReader
from k8s.api.client import Manifests
from k8s.jobs import Job, JobState, read_job
from k8s.objects import BUILD_LABEL, Ref
from k8s.pods import Pod, read_pod

# Events, queues, and quotas aren't watched, so builds that haven't started are polled.
EARLY, POLL_EARLY, POLL_LATE = timedelta(minutes=2), timedelta(seconds=10), timedelta(minutes=1)
FAILED_LOG_LINES = 200  # enough to find the instruction that failed; the whole log is attached


async def observe_builds(
    sweep: SweepRecord, plan: SweepPlan, clients: SweepClients, reader: CacheReader
) -> Observation:
    """Return the builds' Jobs, images, and failures. Raises RegistryError.

    `cached` is False if the sweep's image exists: the registry shows that, not a cache.
    """
    await clients.store.wait_for_builds([build.ref.name for build in plan.builds], sweep.id)
    # Jobs first: so an image that is pushed between the two calls is found.
    jobs = await asyncio.gather(*(_job(build, reader) for build in plan.builds))
    seen = [BuildSeen(build=build, job=job) for build, job in zip(plan.builds, jobs, strict=True)]
    missing = None
    if plan.builds and not any(one.running for one in seen):
        missing = ImageRef(plan.image_repository, plan.image_tag)
        if digest := await recorded(missing, clients):
            return Observation(digest=digest, builds=tuple(seen))
    found = await _found(sweep, plan, seen, clients, missing)
    if any(one.there is False and one.job is None for one in found):
        # Raises if the registry is unreachable: a build would fail at its push.
        await clients.registry.digest(plan.image_repository, plan.image_tag)
    whole = next((one.digest for one in found if one.build.tag == plan.image_tag), None)
    builds = tuple([await _with_trouble(sweep, one, clients, reader) for one in found])
    waits = any(one.running and not one.started for one in builds)
    poll = POLL_EARLY if clients.now() - sweep.since < EARLY else POLL_LATE
    return Observation(
        digest=whole or None,
        builds=builds,
        observe_again_in=poll if waits else None,
        cached=reader.cached and not whole,
    )


async def with_prebuilt_image(space: SearchSpace, clients: SweepClients, *, in_file: bool) -> SearchSpace:
    """Return the space with its image by digest, because tags can move. Raises UserError, RegistryError.

    `in_file`: the space file names the image, not an option.
    """
    if not space.image:
        return space
    name, settings = prebuilt_image(space.image, clients.config, in_file=in_file), clients.settings
    if name.digest:
        return space
    if name.registry == settings.registry_host:
        digest = await clients.registry.digest(name.repository, name.tag)
    else:
        where = f"{name.registry}/{name.repository}"
        registry = Registry(name.registry, credentials=partial(asyncio.to_thread, settings.login, where))
        try:
            digest = await registry.digest(name.repository, name.tag)
        except UnknownHostError as error:
            error.given = f"image: {space.image}" if in_file else f"image={space.image}"
            raise
        finally:
            await registry.close()
    if digest is None:
        raise UserError(f"The image {space.image} isn't in its registry, or Sweepbot has no access to it.")
    return replace(space, image=name.at(digest))


async def left_builds(
    sweep: SweepRecord, plan: SweepPlan, clients: SweepClients, reader: CacheReader
) -> tuple[BuildSeen, ...]:
    """Return the builds of a sweep that stops without an image; those that no other sweep needs are deleted.

    A deleted Job disappears at once, its pod only after its container has exited.
    """
    left = []
    for build in () if sweep.image else plan.builds:
        others = await clients.store.stop_waiting(build.ref.name, sweep.id)
        job, pods = await _job(build, reader), _read(await _pods(build.ref, reader))
        alive = tuple(pod for pod in pods if not pod.finished)
        left.append(BuildSeen(build=build, job=job, shared=others > 0, alive=alive))
    return tuple(left)


async def _job(build: Build, reader: CacheReader) -> Job | None:
    obj = await reader.get(build.ref)
    job = read_job(obj) if obj else None
    if job is None or job.state is not JobState.COMPLETE:
        return job
    pods = _read(await _pods(build.ref, reader))  # a Job's own time includes waits for a node and an image
    return replace(job, seconds=next((pod.seconds for pod in pods if pod.seconds is not None), None))


async def _pods(ref: Ref, reader: Reader) -> Manifests:
    return await reader.list("Pod", ref.namespace, labels=f"{BUILD_LABEL}={ref.name}")


def _read(pods: Manifests) -> list[Pod]:
    return [read_pod(pod, kaniko.BUILD_CONTAINER) for pod in pods]


async def _found(
    sweep: SweepRecord,
    plan: SweepPlan,
    seen: list[BuildSeen],
    clients: SweepClients,
    missing: ImageRef | None,
) -> list[BuildSeen]:
    """Return the builds with their digests. The frameworks image isn't needed once the dependencies exist.

    `missing`: an image that isn't recorded.
    """
    found: dict[Role, BuildSeen] = {}
    for one in reversed(seen):
        build = one.build
        made = next((b.role for b in plan.builds if b.needs == build.tag), None)
        if made and found[made].there:
            found[build.role] = replace(one, there=True)
        elif one.running:
            found[build.role] = one
        else:
            digest = sweep.building.digests.get(build.tag) or await _made(one, clients, missing)
            found[build.role] = replace(one, there=bool(digest), digest=digest or "")
    return [found[one.build.role] for one in seen]


async def _made(one: BuildSeen, clients: SweepClients, missing: ImageRef | None) -> str | None:
    """Return the digest that the build's Job pushed, and record it; else the recorded one."""
    build = one.build
    place = ImageRef(build.repository, build.tag)
    digest = await _pushed(one, clients)
    if digest and await clients.registry.digest(place.repository, digest):
        if build.role is not Role.CODE:  # rebuilt in a second, and used by only one commit
            await record(place, digest, clients)
        return digest
    return None if build.role is Role.CODE or place == missing else await recorded(place, clients)


async def _pushed(one: BuildSeen, clients: SweepClients) -> str | None:
    """Read directly: trials run this digest, and caches don't have the arguments of containers."""
    if one.job is None or one.job.state is not JobState.COMPLETE:
        return None
    job = await clients.cluster.get(one.build.ref)
    pods = await _pods(one.build.ref, clients.cluster)
    return kaniko.pushed_digest(job, pods, kaniko.destination(one.build.job)) if job else None


async def _with_trouble(
    sweep: SweepRecord, one: BuildSeen, clients: SweepClients, reader: CacheReader
) -> BuildSeen:
    if one.job is None or one.there:
        return one
    if one.running:
        return await _with_start(one, clients, reader)
    if one.job.state is JobState.FAILED and one.is_own(sweep.building.uids) and not reader.cached:
        return await _explained(one, one.job, clients)
    return one  # failed in the cache: the direct read that follows explains it (`freshness`)


async def _with_start(one: BuildSeen, clients: SweepClients, reader: CacheReader) -> BuildSeen:
    """Add whether the build's container has started, else why it hasn't."""
    pods = await _pods(one.build.ref, reader)
    if any(pod.running_since or pod.finished for pod in _read(pods)):  # the Job's end follows its pod's
        return replace(one, started=True)
    job = await reader.get(one.build.ref)
    return replace(one, trouble=await diagnose_build(one.build.ref, job, pods, clients))


async def _explained(one: BuildSeen, job: Job, clients: SweepClients) -> BuildSeen:
    ref = one.build.ref
    pod = next((pod for pod in _read(await _pods(ref, clients.cluster)) if pod.finished), None)
    container = (pod and pod.init_failed) or kaniko.BUILD_CONTAINER
    log = await clients.tail(ref.namespace, pod.name, container, FAILED_LOG_LINES) if pod else ""
    trouble = await run_in_parser_thread(explain, log, job, pod)
    return replace(one, trouble=trouble, pod=pod.name if pod else "", container=container)
