"""Ask the outside about one sweep: only what its phase needs to know."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from bot.config import repository
from bot.git import GitUnavailable
from bot.health import Diagnosis, crash, no_pod, waiting
from bot.lookup import look_up
from bot.models import Ask, EventKind, Goal, Phase, SweepPlan, SweepRecord, UserError
from bot.observation import Observation
from bot.outside import Outside
from bot.planning import plan
from k8s import kaniko
from k8s.cluster import ApiError, Unreachable
from k8s.jobs import Job, JobState, read_job
from k8s.katib import DELIVERY, EXPERIMENT_LABEL, MAIN, read_experiment, read_trial
from k8s.objects import BUILD_LABEL, SWEEP_LABEL
from k8s.pods import is_trial_pod, read_pod

LOG_LINES = 20
LOG_CHARACTERS = 8000  # a line can be a whole progress bar
LOG_PATIENCE = 5.0  # seconds
GIT_PATIENCE = timedelta(minutes=2)


async def observe(sweep: SweepRecord, asks: tuple[Ask, ...], outside: Outside) -> Observation:
    if sweep.phase is Phase.RECEIVED:
        return await _request(sweep, asks, outside)
    if sweep.plan is None or sweep.phase is Phase.OPENING:
        return Observation(asks=asks)
    if sweep.phase is Phase.BUILDING:
        return await _build(sweep, sweep.plan, asks, outside)
    return await _experiment(sweep, sweep.plan, asks, outside)


async def _request(sweep: SweepRecord, asks: tuple[Ask, ...], outside: Outside) -> Observation:
    try:
        repo = repository(sweep.request.repo, outside.config)
        order = await look_up(
            outside.git,
            repo,
            sweep.request,
            outside.config.limits,
            sweep=sweep.id,
            owner=sweep.asker.user,
            delivery=sweep.delivery,
        )
        return Observation(asks=asks, plan=plan(order, outside.settings))
    except UserError as error:
        return Observation(asks=asks, refusal=str(error))
    except GitUnavailable as error:
        if outside.now() - sweep.created < GIT_PATIENCE:
            raise
        return Observation(asks=asks, refusal=f"{error} Please send the command again later.")


async def _build(
    sweep: SweepRecord, plan_: SweepPlan, asks: tuple[Ask, ...], outside: Outside
) -> Observation:
    await outside.store.wait_for_build(plan_.build_ref.name, sweep.id)
    # The Job first: an image pushed between the two questions is then found, not missed.
    job = await _job(plan_, outside)
    digest = await outside.registry.digest(plan_.image_repository, plan_.image_tag)
    trouble = await _build_trouble(plan_, job, outside) if job and digest is None else None
    return Observation(asks=asks, digest=digest, build=job, build_trouble=trouble)


async def _job(plan_: SweepPlan, outside: Outside) -> Job | None:
    job = await outside.cluster.get(plan_.build_ref)
    return read_job(job) if job else None


async def _build_trouble(plan_: SweepPlan, job: Job, outside: Outside) -> Diagnosis | None:
    ref = plan_.build_ref
    found = await outside.cluster.list("Pod", ref.namespace, labels=f"{BUILD_LABEL}={ref.name}")
    for pod in [read_pod(p, kaniko.CONTAINER) for p in found]:
        if job.state is JobState.FAILED and pod.exit:
            log = await _log(outside, ref.namespace, pod.name, kaniko.CONTAINER)
            return crash(pod, log)
        if job.state is JobState.ACTIVE and (trouble := waiting(pod)):
            return trouble
    return None


async def _experiment(
    sweep: SweepRecord, plan_: SweepPlan, asks: tuple[Ask, ...], outside: Outside
) -> Observation:
    cluster, ref = outside.cluster, plan_.experiment_ref
    ours = f"{SWEEP_LABEL}={sweep.id}"
    experiment, trials, jobs, pods = await asyncio.gather(
        cluster.get(ref),
        cluster.list("Trial", ref.namespace, labels=f"{EXPERIMENT_LABEL}={ref.name}"),
        cluster.list("Job", ref.namespace, labels=ours),
        cluster.list("Pod", ref.namespace, labels=ours),
    )
    if experiment and experiment["metadata"].get("annotations", {}).get(DELIVERY) != sweep.delivery:
        return Observation(asks=asks, foreign=True)  # nothing of an older sweep is ours to count or to end
    space = plan_.space
    maximize = space.goal is Goal.MAXIMIZE
    build, shared = await _left_build(sweep, plan_, outside)
    seen = Observation(
        asks=asks,
        build=build,
        build_shared=shared,
        experiment=read_experiment(experiment),
        trials=tuple(read_trial(t, space.metric, maximize=maximize) for t in trials),
        jobs=tuple(read_job(j) for j in jobs),
        pods=tuple(read_pod(p, MAIN) for p in pods if is_trial_pod(p)),
    )
    return replace(seen, trouble=await _trouble(sweep, seen, ref.namespace, outside))


async def _left_build(sweep: SweepRecord, plan_: SweepPlan, outside: Outside) -> tuple[Job | None, bool]:
    """A sweep that stops without an image may leave a build that nobody else waits for."""
    if sweep.image:
        return None, False
    others = await outside.store.stop_waiting(plan_.build_ref.name, sweep.id)
    return await _job(plan_, outside), others > 0


async def _trouble(
    sweep: SweepRecord, seen: Observation, namespace: str, outside: Outside
) -> tuple[Diagnosis, ...]:
    """At most one of a kind, and nothing about what was told already: logs and events cost a call each."""
    if sweep.phase not in {Phase.PROVING, Phase.RUNNING}:
        return ()
    found = [d for p in seen.pods if not p.finished and (d := waiting(p))][:1]
    failed = next((p for p in seen.pods if p.finished and crash(p, "")), None)
    if failed and f"{EventKind.TRIAL_FAILED}/crash" not in sweep.told:
        log = await _log(outside, namespace, failed.name, MAIN)
        found += [d for d in [crash(failed, log)] if d]
    podless = {j.name for j in seen.jobs if j.state is JobState.ACTIVE} - {p.job for p in seen.pods}
    if podless and sweep.phase is Phase.PROVING:
        found += await _refused_pod(min(podless), namespace, outside)
    return tuple(found)


async def _refused_pod(job: str, namespace: str, outside: Outside) -> list[Diagnosis]:
    fields = f"involvedObject.kind=Job,involvedObject.name={job}"
    events = await outside.cluster.list("Event", namespace, fields=fields)
    return [no_pod(job, e.get("message", "")) for e in events if e.get("reason") == "FailedCreate"][-1:]


async def _log(outside: Outside, namespace: str, pod: str, container: str) -> str:
    """The last lines, as far as they can be had: a dead kubelet must not hide that a trial is over."""
    try:
        async with asyncio.timeout(LOG_PATIENCE):
            log = await outside.cluster.log(namespace, pod, container, tail=LOG_LINES)
    except (ApiError, Unreachable, TimeoutError) as error:
        return f"(its log can't be read: {error or 'its node does not answer'})"
    return log.replace("\0", "").strip()[-LOG_CHARACTERS:]
