"""Observe what one sweep's phase depends on: git, the registry, the cluster, and the other sweeps that count
for the GPU limits of its owner.

Two workers can check two sweeps of one person or team at once, and neither sees what the other one is about
to save. So the group's last check is read before the other sweeps are, and the save is rejected if there was
another one since. Nothing is locked: a worker that dies between the two holds up no other sweep.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta

from bot.core.commands import Command
from bot.core.errors import UserError
from bot.core.plan import SweepPlan
from bot.core.record import LimitCheck, Phase, SweepRecord
from bot.platform.config.permissions import OtherPeaks
from bot.platform.config.policy import repository
from bot.platform.config.teams import team_of
from bot.platform.registry.auth import RegistryError
from bot.platform.repos.git_commands import GitUnavailableError
from bot.sweep.clients import SweepClients
from bot.sweep.decisions.commands import COUNTED_AGAIN
from bot.sweep.feature_table import FEATURES
from bot.sweep.launch.budget import with_budget
from bot.sweep.launch.clusters import planned
from bot.sweep.launch.pods import namespace_of
from bot.sweep.launch.resolve import look_up
from bot.sweep.launch.spending import with_forecast
from bot.sweep.launch.user_limits import limit_group, limited_sweeps, other_peaks
from bot.sweep.model import engine
from bot.sweep.model.observation import Observation, RawObjects
from bot.sweep.results.warm_start import with_past
from bot.sweep.sweeps.observe_builds import left_builds, observe_builds, with_prebuilt_image
from bot.sweep.sweeps.transient_errors import PLAN_TIMEOUT, refusal
from bot.text.masking import Mask
from k8s.api.cache import CacheReader, Caches
from k8s.api.client import Manifests
from k8s.engine import Experiment, Trial, TrialState
from k8s.jobs import JobState, read_job
from k8s.objects import SWEEP_LABEL, ReadOnce, read_each, read_once
from k8s.pods import Pod, read_trial_pods

PLAN_RETRY = timedelta(seconds=1)  # while an older sweep of the same user is planned


async def observe(
    sweep: SweepRecord, commands: tuple[Command, ...], clients: SweepClients, *, fresh: bool = False
) -> Observation:
    """Return the observation of the sweep and its features, with secrets masked in texts from other systems.

    `fresh`: read from the API server; otherwise from caches where watches keep them complete.
    """
    seen = _masked(await _seen(sweep, commands, clients, fresh=fresh), clients.mask)
    for feature in FEATURES:
        seen = await feature.observe(sweep, seen, clients) if feature.observe else seen
    return seen


async def _seen(
    sweep: SweepRecord, commands: tuple[Command, ...], clients: SweepClients, *, fresh: bool
) -> Observation:
    if sweep.phase is Phase.RECEIVED:
        return await _request(sweep, commands, clients)
    if sweep.plan is None or sweep.phase is Phase.OPENING:
        return Observation(commands=commands)
    reader = CacheReader(Caches() if fresh else clients.caches, clients.cluster)
    if sweep.phase is Phase.BUILDING:
        return replace(await observe_builds(sweep, sweep.plan, clients.home, reader), commands=commands)
    there = CacheReader(Caches() if fresh else clients.trial_caches, clients.trials)
    seen = await _experiment(sweep, sweep.plan, commands, clients, there, reader)
    if any(command.action in COUNTED_AGAIN for command in commands):
        others, checks = await _observe_others(sweep, clients)
        return replace(seen, others=others, limit_checks=checks)
    return seen


async def _request(sweep: SweepRecord, commands: tuple[Command, ...], clients: SweepClients) -> Observation:
    if (counted := await _observe_older(sweep, clients)) is None:
        return Observation(commands=commands, observe_again_in=PLAN_RETRY)
    others, checks = counted
    try:
        repo = repository(sweep.request.repo, clients.config, sweep.requester.channel)
        order = await look_up(
            clients.git,
            repo,
            sweep.request,
            clients.config,
            sweep=sweep.id,
            owner=sweep.requester.user,
            request_id=sweep.request_id,
        )
        user = sweep.requester.user
        home = namespace_of(user, sweep.requester.channel, clients.config) or clients.settings.k8s_namespace
        order = replace(
            order,
            owner_name=sweep.requester.user_name,
            namespace=home,
            team=team_of(clients.config.teams, home, user),
            space=await with_prebuilt_image(order.space, clients, in_file=not sweep.request.image),
        )
        past = await with_past(order.space, order.request, repo.url, clients.kept_results)
        order = with_budget(replace(order, space=past), clients.config)
        plan = await with_forecast(await planned(order, clients), order.price, sweep.requester, clients)
        return Observation(commands=commands, plan=plan, others=others, limit_checks=checks)
    except UserError as error:
        return Observation(commands=commands, refusal=str(error))
    except (GitUnavailableError, RegistryError) as error:
        if clients.now() - (sweep.outage.since or clients.now()) < PLAN_TIMEOUT:
            raise
        return Observation(commands=commands, refusal=refusal(error))


async def _experiment(
    sweep: SweepRecord,
    plan_: SweepPlan,
    commands: tuple[Command, ...],
    clients: SweepClients,
    reader: CacheReader,
    at_home: CacheReader,
) -> Observation:
    namespace, ours = plan_.experiment_ref.namespace, f"{SWEEP_LABEL}={sweep.id}"
    experiment, trials, jobs, pods = await asyncio.gather(
        engine.find_experiment(plan_, reader),
        engine.list_trials(sweep, plan_, reader),
        reader.list(plan_.trial_kind.kind, namespace, labels=ours),
        reader.list("Pod", namespace, labels=ours),
    )
    if experiment and experiment.request_id not in {sweep.request_id, "" if sweep.submitted else None}:
        # The objects are of an older sweep with this name; a user can remove the annotation of this one's.
        return Observation(commands=commands, foreign=True, cached=reader.cached)
    if experiment and (sweep.phase is Phase.STOPPING or not reader.cached):
        lost_trials, lost_jobs = await _unlabelled(plan_, clients, experiment, trials, jobs, pods)
        trials = (*trials, *lost_trials) if lost_trials else trials
        jobs = [*jobs, *lost_jobs] if lost_jobs else jobs
    return Observation(
        commands=commands,
        raw=RawObjects(experiment=experiment, trials=trials, jobs=jobs, pods=pods),
        builds=await left_builds(sweep, plan_, clients, at_home),
        experiment=experiment,
        trials=trials,
        jobs=read_each(read_job, jobs),
        pods=read_once(_read_pods, pods, jobs),
        nodes=plan_.nodes,
        cached=reader.cached or at_home.cached,
    )


async def _unlabelled(
    plan_: SweepPlan,
    clients: SweepClients,
    experiment: Experiment,
    trials: tuple[Trial, ...],
    jobs: Manifests,
    pods: Manifests,
) -> tuple[tuple[Trial, ...], Manifests]:
    """Return the trials, and the active Jobs that others name, that lost the sweep's label.

    They hold GPUs, and Katib creates the deleted Job of a trial again until the trial is stopped.
    """
    ref = plan_.experiment_ref
    known = {job["metadata"]["name"] for job in jobs}
    of_pods = {pod.job for pod in read_once(_read_pods, pods, jobs) if not (pod.finished or pod.deleted)}
    active = {job.name for job in read_each(read_job, jobs) if job.state is JobState.ACTIVE} | of_pods
    active = {name for name in active if name.startswith(f"{ref.name}-")}  # not of an earlier attempt
    named = active | engine.named_trials(experiment)
    lost: tuple[Trial, ...] = ()
    if named - {trial.name for trial in trials}:
        lost = await engine.list_unlabelled(plan_, clients.trials)
    live = {trial.name for trial in (*trials, *lost) if trial.state is TrialState.LIVE}
    found = [
        clients.trials.list(plan_.trial_kind.kind, ref.namespace, fields=f"metadata.name={name}")
        for name in (active | live) - known
    ]
    return lost, [job for each in await asyncio.gather(*found) for job in each]


def _read_pods(found: Manifests, jobs: Manifests) -> tuple[Pod, ...]:
    return ReadOnce(read_trial_pods(found, jobs))


def _masked(seen: Observation, mask: Mask) -> Observation:
    experiment = seen.experiment and replace(seen.experiment, message=mask(seen.experiment.message))
    return replace(
        seen,
        refusal=mask(seen.refusal),
        builds=tuple(replace(one, trouble=one.trouble and one.trouble.masked(mask)) for one in seen.builds),
        experiment=experiment,
    )


async def _observe_others(
    sweep: SweepRecord, clients: SweepClients
) -> tuple[OtherPeaks, tuple[LimitCheck, ...]]:
    """Return the peaks of the other sweeps that count, and the check to save with; none without a limit."""
    others, checks = await _others(sweep, clients)
    return other_peaks(sweep.requester.user, others), checks


async def _observe_older(
    sweep: SweepRecord, clients: SweepClients
) -> tuple[OtherPeaks, tuple[LimitCheck, ...]] | None:
    """Return the same for a new sweep; None while an older one isn't planned yet: that one comes first."""
    others, checks = await _others(sweep, clients)
    first = (one for one in others if (one.created, one.id) < (sweep.created, sweep.id))
    if any(one.plan is None and clients.now() - one.created < 2 * PLAN_TIMEOUT for one in first):
        return None
    return other_peaks(sweep.requester.user, others), checks


async def _others(
    sweep: SweepRecord, clients: SweepClients
) -> tuple[list[SweepRecord], tuple[LimitCheck, ...]]:
    user = sweep.requester.user
    group, _ = limit_group(user, clients.config)
    if not group:
        return [], ()
    check = await clients.store.limit_check(group)
    return [one for one in await limited_sweeps(user, clients) if one.id != sweep.id], (check,)
