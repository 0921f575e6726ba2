"""Ask the outside about one sweep: only what its phase needs to know."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from bot.access import peak_gpus
from bot.aside import aside
from bot.building import left_builds, observe_builds, with_ready_image
from bot.config import repository
from bot.examining import Examination
from bot.git import GitUnavailable
from bot.health import Diagnosis
from bot.lookup import look_up
from bot.masking import Mask
from bot.models import Ask, Goal, Phase, SweepPlan, SweepRecord, UserError
from bot.observation import BuildSeen, Observation
from bot.outside import Outside
from bot.planning import plan
from bot.teams import team_of
from k8s.jobs import read_job
from k8s.katib import DELIVERY, EXPERIMENT_LABEL, MAIN, read_experiment, read_trial
from k8s.objects import SWEEP_LABEL
from k8s.pods import is_trial_pod, read_pod
from k8s.registry import RegistryError

PATIENCE = timedelta(minutes=2)
NEXT = timedelta(seconds=1)  # until an older sweep of the same person may be planned


async def observe(sweep: SweepRecord, asks: tuple[Ask, ...], outside: Outside) -> Observation:
    """What is said in it, by pods, events, webhooks and git, is masked: it goes into records and to Slack."""
    return _masked(await _seen(sweep, asks, outside), outside.mask)


async def _seen(sweep: SweepRecord, asks: tuple[Ask, ...], outside: Outside) -> Observation:
    if sweep.phase is Phase.RECEIVED:
        return await _request(sweep, asks, outside)
    if sweep.plan is None or sweep.phase is Phase.OPENING:
        return Observation(asks=asks)
    if sweep.phase is Phase.BUILDING:
        return replace(await observe_builds(sweep, sweep.plan, outside), asks=asks)
    return await _experiment(sweep, sweep.plan, asks, outside)


async def _request(sweep: SweepRecord, asks: tuple[Ask, ...], outside: Outside) -> Observation:
    if (others := await _others(sweep, outside)) is None:
        return Observation(asks=asks, look_in=NEXT)
    try:
        repo = repository(sweep.request.repo, outside.config, sweep.asker.channel)
        order = await look_up(
            outside.git,
            repo,
            sweep.request,
            outside.config,
            sweep=sweep.id,
            owner=sweep.asker.user,
            delivery=sweep.delivery,
        )
        home = outside.config.homes.get(sweep.asker.channel, outside.settings.k8s_namespace)
        team = team_of(outside.config.teams, home, sweep.asker.user)
        order = replace(order, namespace=home, team=team, space=await with_ready_image(order.space, outside))
        return Observation(asks=asks, plan=await aside(plan, order, outside.settings), others=others)
    except UserError as error:
        return Observation(asks=asks, refusal=str(error))
    except (GitUnavailable, RegistryError) as error:
        if outside.now() - sweep.created < PATIENCE:
            raise
        return Observation(asks=asks, refusal=f"{error} Please send the command again later.")


async def _others(sweep: SweepRecord, outside: Outside) -> int | None:
    """GPUs that the person's other live sweeps can use.

    None: an older one is still to be planned, and comes first. So two at once can't both take what is left.
    """
    others = [one for one in await limited_of(sweep.asker.user, outside) if one.id != sweep.id]
    first = (one for one in others if (one.created, one.id) < (sweep.created, sweep.id))
    if any(one.plan is None and outside.now() - one.created < 2 * PATIENCE for one in first):
        return None
    return peak_of(others)


async def limited_of(user: str, outside: Outside) -> list[SweepRecord]:
    """A person's live sweeps; none where their GPUs are not limited."""
    if outside.config.launch.gpus_per_person is None:
        return []
    ids = [each.id for each in await outside.store.listed() if each.live and each.user == user]
    return [one for one in await outside.store.records(ids) if not one.phase.final]


def peak_of(sweeps: Iterable[SweepRecord]) -> int:
    return sum(peak_gpus(one.plan) for one in sweeps if one.plan)


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
    seen = Observation(
        asks=asks,
        builds=await left_builds(sweep, plan_, outside),
        experiment=read_experiment(experiment),
        trials=tuple(read_trial(t, space.metric, maximize=maximize) for t in trials),
        jobs=tuple(read_job(j) for j in jobs),
        pods=tuple(read_pod(p, MAIN) for p in pods if is_trial_pod(p)),
    )
    examination = Examination(sweep, plan_, outside)
    if experiment:
        await examination.run(experiment, trials, jobs, pods)
    return replace(seen, trouble=examination.trouble, look_in=examination.look_in)


def _masked(seen: Observation, mask: Mask) -> Observation:
    experiment = seen.experiment and replace(seen.experiment, message=mask(seen.experiment.message))
    return replace(
        seen,
        refusal=mask(seen.refusal),
        builds=tuple(_masked_build(one, mask) for one in seen.builds),
        experiment=experiment,
        trouble=tuple(_masked_diagnosis(each, mask) for each in seen.trouble),
    )


def _masked_build(one: BuildSeen, mask: Mask) -> BuildSeen:
    return replace(one, trouble=_masked_diagnosis(one.trouble, mask)) if one.trouble else one


def _masked_diagnosis(one: Diagnosis, mask: Mask) -> Diagnosis:
    """Its key as well, which may be a line of a log."""
    return replace(one, key=mask(one.key), text=mask(one.text), mend=mask(one.mend), detail=mask(one.detail))
