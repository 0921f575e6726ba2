"""Check an installation with the bot's own credentials and URLs, for `sweepbot doctor` and `/sweep doctor`.

Checks are independent and run concurrently, each for up to `CHECK_TIMEOUT` seconds. A check without
permission (reading beyond the bot's namespace needs deploy/doctor) is a warning, never broken.
"""

import asyncio
import logging
from collections.abc import Awaitable

from kubernetes.aio.config import ConfigException
from slack_sdk.errors import SlackApiError

from bot.clients import Clients
from bot.config.live_policy import LivePolicy
from bot.config.permissions import doctor_denial
from bot.config.policy import Config, all_namespaces
from bot.config.settings import Settings
from bot.core.work_item import DOCTOR
from bot.doctor import probe_cluster, probe_services
from bot.doctor.clusters import clusters
from bot.doctor.findings import Finding, as_mrkdwn, broken, ok, warning
from bot.doctor.nodes import several_nodes
from bot.doctor.operators import check_name, operators
from bot.doctor.probe_elastic import elastic
from bot.doctor.probe_environments import environments
from bot.doctor.probe_services import Installation, Resolve, Resolver
from bot.doctor.profiles import profiles
from bot.doctor.queues import queues
from bot.doctor.reservations import reservations
from bot.slack.client import NotInChannelError
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, UnreachableError

CHECK_TIMEOUT = 20.0  # seconds for one check
API_FIX = "kubectl version  # check KUBECONFIG, or the pod's service account"

log = logging.getLogger(__name__)

Findings = list[Finding]


async def answer_commands(_: str, clients: Clients, policy: LivePolicy) -> None:
    """Run the checks and answer each `/sweep doctor`; a worker checks its own permissions and network.

    Who can ask is checked again: admins can have changed since the command was queued.
    """
    commands = await clients.store.commands(str(DOCTOR))
    if not commands:
        return
    findings = [*configuration(policy.error), *await run(clients.settings, clients.config)]
    text = clients.mask(as_mrkdwn(findings))
    for command in commands:
        try:
            answer = doctor_denial(command.user, clients.config) or text
            await clients.slack.post_ephemeral(command.user, answer, command.response_url)
        except (SlackApiError, NotInChannelError) as error:
            log.warning("Slack rejected the doctor's answer: %s", error)
    await clients.store.remove_commands(str(DOCTOR), commands)


def configuration(error: str) -> Findings:
    """Return the finding about a configuration file with errors; without any, no finding."""
    if not error:
        return []
    fix = "correct the file and apply it again; running processes use the previous one, new ones fail"
    return [broken("configuration", error, fix)]


async def run(settings: Settings, config: Config, *, resolve: Resolve | None = None) -> Findings:
    """Run all checks. Raises nothing.

    Args:
        resolve: looks up a host name; raises OSError if unknown. The system's resolver by default.
    """
    with Resolver() as real:
        target = Installation(settings=settings, config=config, resolve=resolve or real)
        services = [checked(name, check(target)) for name, check in probe_services.CHECKS.items()]
        cluster, *found = await asyncio.gather(_cluster(settings, config), *services)
    return [*cluster, *_flat(found)]


async def _cluster(settings: Settings, config: Config) -> Findings:
    namespace = settings.k8s_namespace
    try:
        cluster = await KubernetesClient.connect()
    except (ConfigException, OSError) as error:
        return [broken("Kubernetes API", f"can't connect: {error}", API_FIX)]
    try:
        version = await cluster.version()
        checks = [checked(name, check(cluster, namespace)) for name, check in probe_cluster.CHECKS.items()]
        gpu_use = probe_cluster.gpu_use(cluster, scrapes=not settings.prometheus_url)
        checks.append(checked("GPU use", gpu_use))
        checks.append(checked("profiles", profiles(cluster, config)))
        checks.append(checked("environments", environments(cluster, settings, config)))
        checks.append(checked("elastic", elastic(cluster, config)))
        checks.append(checked("Kueue", queues(cluster, settings, config)))
        checks.append(checked(check_name(config), operators(cluster, config)))
        checks.append(clusters(cluster, settings, config, checked))
        checks.append(checked("reservations", reservations(cluster, settings, config)))
        more = all_namespaces(namespace, config)[1:]
        checks += [
            checked(f"namespace {each}", probe_cluster.trial_namespace(cluster, each)) for each in more
        ]
        if settings.builds_in not in all_namespaces(namespace, config):
            builds = probe_cluster.build_namespace(cluster, settings.builds_in)
            checks.append(checked(f"namespace {settings.builds_in}", builds))
        nodes = several_nodes(version, config)
        return [ok("Kubernetes API", version), *nodes, *_flat(await asyncio.gather(*checks))]
    except (ApiError, UnreachableError) as error:
        return [broken("Kubernetes API", str(error), API_FIX)]
    finally:
        await cluster.close()


async def checked(name: str, check: Awaitable[Findings]) -> Findings:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            return await check
    except TimeoutError:
        return [broken(name, f"no answer within {CHECK_TIMEOUT:.0f} s", "")]
    except ApiError as error:
        if error.status == 403:
            return [warning(name, "unknown: no permission", probe_cluster.GRANT_READ)]
        return [warning(name, f"unknown: {error}", "")]
    except Exception as error:  # noqa: BLE001 - every failure is a finding
        return [broken(name, f"{type(error).__name__}: {error}", "")]


def _flat(found: list[Findings]) -> Findings:
    return [finding for findings in found for finding in findings]
