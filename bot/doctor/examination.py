"""`sweepbot doctor` and `/sweep doctor`: does this installation work? Every part is asked as the bot asks it.

Checks don't depend on one another, run at the same time and within `PATIENCE` seconds each. What a check may
not see (the cluster beyond the bot's namespace wants deploy/doctor) is a warning, never a fault.
"""

import asyncio
import logging
from collections.abc import Awaitable

from kubernetes.aio.config import ConfigException
from slack_sdk.errors import SlackApiError

from bot.clients import Clients
from bot.config.policy import Config, all_namespaces
from bot.config.settings import Settings
from bot.doctor import check_cluster, check_services
from bot.doctor.check_services import Installation, Resolve, Resolver
from bot.doctor.findings import Finding, as_mrkdwn, broken, ok, warning
from bot.slack.client import NotInChannelError
from k8s.client import KubernetesClient
from k8s.errors import ApiError, UnreachableError

ITEM = "the doctor"  # in the queue; nobody can type a sweep's name with a blank
PATIENCE = 20.0  # seconds for one check
API_MEND = "kubectl version; look at KUBECONFIG, or at the pod's service account"

log = logging.getLogger(__name__)

Findings = list[Finding]


async def visit(clients: Clients) -> None:
    """Answer all who asked. A turn, for only workers have the rights and the ways that are to be tried."""
    commands = await clients.store.commands(ITEM)
    if not commands:
        return
    text = clients.mask(as_mrkdwn(await run(clients.settings, clients.config)))
    for command in commands:
        try:
            await clients.slack.post_ephemeral(command.user, text, command.response_url)
        except (SlackApiError, NotInChannelError) as error:
            log.warning("Slack does not take the doctor's answer: %s", error)
    await clients.store.remove_commands(ITEM, commands)


async def run(settings: Settings, config: Config, *, resolve: Resolve | None = None) -> Findings:
    """In the order in which one would look. Raises nothing. `resolve` raises OSError for an unknown name."""
    with Resolver() as real:
        one = Installation(settings=settings, config=config, resolve=resolve or real)
        services = [_tried(name, check(one)) for name, check in check_services.CHECKS.items()]
        cluster, *found = await asyncio.gather(_cluster(settings, config), *services)
    return [*cluster, *_flat(found)]


async def _cluster(settings: Settings, config: Config) -> Findings:
    namespace = settings.k8s_namespace
    try:
        cluster = await KubernetesClient.connect()
    except (ConfigException, OSError) as error:
        return [broken("Kubernetes API", f"no way to it: {error}", API_MEND)]
    try:
        version = await cluster.version()
        checks = [_tried(name, check(cluster, namespace)) for name, check in check_cluster.CHECKS.items()]
        gpu_use = check_cluster.gpu_use(cluster, scrapes=not settings.prometheus_url)
        checks.append(_tried("GPU use", gpu_use))
        more = all_namespaces(namespace, config)[1:]
        checks += [_tried(f"namespace {each}", check_cluster.of_trials(cluster, each)) for each in more]
        if settings.builds_in not in all_namespaces(namespace, config):
            builds = check_cluster.of_builds(cluster, settings.builds_in)
            checks.append(_tried(f"namespace {settings.builds_in}", builds))
        return [ok("Kubernetes API", version), *_flat(await asyncio.gather(*checks))]
    except (ApiError, UnreachableError) as error:
        return [broken("Kubernetes API", str(error), API_MEND)]
    finally:
        await cluster.close()


async def _tried(name: str, check: Awaitable[Findings]) -> Findings:
    try:
        async with asyncio.timeout(PATIENCE):
            return await check
    except TimeoutError:
        return [broken(name, f"no answer within {PATIENCE:.0f} s", "")]
    except ApiError as error:
        if error.status == 403:
            return [warning(name, "unknown: not allowed to look", check_cluster.LOOK)]
        return [warning(name, f"unknown: {error}", "")]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return [broken(name, f"{type(error).__name__}: {error}", "")]


def _flat(found: list[Findings]) -> Findings:
    return [finding for findings in found for finding in findings]
