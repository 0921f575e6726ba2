"""Check an installation with the bot's own credentials and URLs, for `sweepbot doctor` and `/sweep doctor`:
which checks run, in which order, also in other clusters.

A check without permission (beyond the bot's namespace, deploy/doctor grants it) is a warning, never broken.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain

from kubernetes.aio.config import ConfigException

from bot.core.finding import Finding, Level, broken, ok
from bot.core.work_item import DOCTOR
from bot.operate import check_cluster, check_queues, check_services
from bot.operate.check_cluster import KATIB, granted
from bot.operate.check_devices import CHECK, device_classes
from bot.operate.check_gpus import LOGS, USE, gpu_checks, gpu_use, kubelets
from bot.operate.check_services import SERVICES, Installation
from bot.operate.check_state import AROUND, STATE
from bot.operate.check_trial_kinds import check_name, event_reader, operators, several_nodes
from bot.operate.findings import API_FIX, Findings, Named, findings_mrkdwn, run_all
from bot.platform.clients import Clients
from bot.platform.clusters.connections import Identities
from bot.platform.config.clusters import TrialCluster, remote
from bot.platform.config.live_policy import LivePolicy
from bot.platform.config.permissions import doctor_denial
from bot.platform.config.policy import Config, all_namespaces, namespaces_in
from bot.platform.config.settings import Settings
from bot.platform.repos.git_commands import logins
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, ClusterUnreachableError, UnreachableError
from k8s.api.remote import RemoteClient
from k8s.rbac import FOR_CLUSTERS

GRANT_CLUSTERS = "kubectl apply -f deploy/clusters/remote.yaml  # in that cluster"
CHECKS = {**STATE, **SERVICES, **AROUND}  # in the order in which they are shown
NOW = ("Slack token", "registry", "git", "MLflow")  # services of which a failure explains a sweep's wait

# Returns more checks of the main cluster: those of workspaces.
MoreChecks = Callable[[KubernetesClient, Settings, Config], Iterable[Named]]


async def answer_commands(_: str, clients: Clients, policy: LivePolicy, more: MoreChecks) -> None:
    """Run the checks and answer each `/sweep doctor`; a worker checks its own permissions and network.

    Who can ask is checked again: admins can have changed since the command was queued.
    """
    commands = await clients.store.commands(str(DOCTOR))
    if not commands:
        return
    findings = [*configuration(policy.error), *await run(clients.settings, clients.config, more)]
    text = clients.mask(findings_mrkdwn(findings))
    for command in commands:
        await clients.answer(command, str(DOCTOR), doctor_denial(command.user, clients.config) or text)


def configuration(error: str) -> Findings:
    """Return the finding about a configuration file with errors; without any, no finding."""
    if not error:
        return []
    fix = "correct the file and apply it again; running processes use the previous one, new ones fail"
    return [broken("configuration", error, fix)]


def require_secrets(config: Config, environ: Mapping[str, str]) -> None:
    """Raise UserError if the environment lacks a secret that the configuration needs."""
    logins(config, environ)
    for each in config.webhooks:
        each.key(environ)


async def run(settings: Settings, config: Config, more: MoreChecks) -> Findings:
    """Run all checks. Raises nothing."""
    target = Installation(settings, config)
    services = run_all((name, check(target)) for name, check in CHECKS.items())
    cluster, found = await asyncio.gather(_cluster(settings, config, more), services)
    return [*cluster, *found]


async def find_faults(clients: Clients) -> tuple[Finding, ...]:
    """Return which services don't work now. Raises nothing."""
    target = Installation(clients.settings, clients.config)
    found = await run_all((name, CHECKS[name](target)) for name in NOW)
    return tuple(each for each in found if each.level is Level.BROKEN)


async def _cluster(settings: Settings, config: Config, more: MoreChecks) -> Findings:
    try:
        cluster = await KubernetesClient.connect()
    except ConfigException as error:
        return [broken("Kubernetes API", f"can't connect: {error}", API_FIX)]
    try:
        version = await cluster.version()
        identities = Identities(cluster, settings.k8s_namespace)
        others = (check_remote(each, identities, settings, config) for each in remote(config.clusters))
        own = chain(_checks(cluster, settings, config), more(cluster, settings, config))
        found = await asyncio.gather(run_all(own), *others)
        versions = [*several_nodes(version, config), *event_reader(version, settings)]
        return [ok("Kubernetes API", version), *versions, *chain(*found)]
    except (ApiError, UnreachableError) as error:
        return [broken("Kubernetes API", str(error), API_FIX)]
    finally:
        await cluster.close()


def _checks(api: KubernetesClient, settings: Settings, config: Config) -> Iterable[Named]:
    """Yield the checks of the main cluster."""
    home, builds = settings.k8s_namespace, settings.builds_in
    yield "RBAC", check_cluster.own_permissions(api, home)
    yield "namespace", check_cluster.trial_namespace(api, home)
    for name, check in (KATIB | gpu_checks(config.pools)).items():
        yield name, check(api)
    yield LOGS, kubelets(api, home)
    yield "default StorageClass", check_cluster.default_storage_class(api)
    yield USE, gpu_use(api, scrapes=not settings.prometheus_url)
    yield "profiles", check_cluster.profiles(api, config)
    yield CHECK, device_classes(api, config, prometheus=bool(settings.prometheus_url))
    yield "Kueue", check_queues.queues(api, settings, config)
    yield check_name(config), operators(api, config)
    yield check_services.SEARCH_CHECK, check_services.search_service(api, config)
    for each in all_namespaces(home, config)[1:]:
        yield f"namespace {each}", check_cluster.trial_permissions(api, each)
        yield f"namespace {each}", check_cluster.trial_namespace(api, each)
    if builds not in all_namespaces(home, config):
        yield f"namespace {builds}", check_cluster.build_namespace(api, builds)


async def check_remote(
    cluster: TrialCluster, identities: Identities, settings: Settings, config: Config
) -> Findings:
    """Check a cluster of `clusters:` beside the main cluster, as far as trials need it. Raises nothing."""
    api = RemoteClient(
        cluster.name, cluster.kubeconfig, cluster.context, partial(identities.stored, cluster.name)
    )
    name = f"cluster {cluster.name}"
    try:
        version = await api.version()
        found = await run_all(_remote_checks(api, cluster, settings, config))
        found += [*several_nodes(version, config), *event_reader(version, settings)]
        return [ok(name, version), *(replace(one, check=f"{cluster.name}: {one.check}") for one in found)]
    except ClusterUnreachableError as failure:
        return [broken(name, failure.why, failure.fix)]
    except (ApiError, UnreachableError) as error:
        return [broken(name, str(error), "")]
    finally:
        await api.close()


def _remote_checks(
    api: KubernetesClient, cluster: TrialCluster, settings: Settings, config: Config
) -> Iterable[Named]:
    places = namespaces_in(cluster, settings.k8s_namespace, config)
    there = settings.model_copy(update={"k8s_namespace": places[0], "build_namespace": "none there"})
    yield "RBAC", _permissions(api)
    for each in places:
        yield f"RBAC in {each}", check_cluster.trial_permissions(api, each, "  # in that cluster")
        yield f"namespace {each}", check_cluster.trial_namespace(api, each)
    for name, check in (KATIB | gpu_checks(config.pools)).items():
        yield name, check(api)
    yield "Kueue", check_queues.queues(api, there, replace(config, namespaces=places[1:]))
    yield check_name(config), operators(api, config)
    yield check_services.SEARCH_CHECK, check_services.search_service(api, config)


async def _permissions(api: KubernetesClient) -> Findings:
    return [replace(await granted(api, "", FOR_CLUSTERS, GRANT_CLUSTERS), check="RBAC of free GPUs")]
