"""`sweepbot doctor` and `/sweep doctor`: does this installation work? Every part is asked as the bot asks it.

Checks don't depend on one another, run at the same time and within `PATIENCE` seconds each. What a check may
not see (the cluster beyond the bot's namespace wants deploy/doctor) is a warning, never a fault.
"""

import asyncio
import logging
from collections.abc import Awaitable

from kubernetes.aio.config import ConfigException
from slack_sdk.errors import SlackApiError

from bot import ask_cluster, ask_services
from bot.ask_services import Installation, Resolve, Resolver
from bot.config import Config, all_namespaces
from bot.findings import Finding, as_mrkdwn, broken, ok, warning
from bot.outside import Outside
from bot.settings import Settings
from bot.slack import NotInChannel
from k8s.cluster import ApiError, Cluster, Unreachable

ITEM = "the doctor"  # in the queue; nobody can type a sweep's name with a blank
PATIENCE = 20.0  # seconds for one check
API_MEND = "kubectl version; look at KUBECONFIG, or at the pod's service account"

log = logging.getLogger(__name__)

Findings = list[Finding]


async def visit(outside: Outside) -> None:
    """Answer all who asked. A turn, for only workers have the rights and the ways that are to be tried."""
    asks = await outside.store.asks(ITEM)
    if not asks:
        return
    text = outside.mask(as_mrkdwn(await run(outside.settings, outside.config)))
    for ask in asks:
        try:
            await outside.slack.whisper(ask.user, text, ask.response_url)
        except (SlackApiError, NotInChannel) as error:
            log.warning("Slack does not take the doctor's answer: %s", error)
    await outside.store.answered(ITEM, asks)


async def run(settings: Settings, config: Config, *, resolve: Resolve | None = None) -> Findings:
    """In the order in which one would look. Raises nothing. `resolve` raises OSError for an unknown name."""
    with Resolver() as real:
        one = Installation(settings=settings, config=config, resolve=resolve or real)
        services = [_tried(name, check(one)) for name, check in ask_services.CHECKS.items()]
        cluster, *found = await asyncio.gather(_cluster(settings, config), *services)
    return [*cluster, *_flat(found)]


async def _cluster(settings: Settings, config: Config) -> Findings:
    namespace = settings.k8s_namespace
    try:
        cluster = await Cluster.connect()
    except (ConfigException, OSError) as error:
        return [broken("Kubernetes API", f"no way to it: {error}", API_MEND)]
    try:
        version = await cluster.version()
        checks = [_tried(name, check(cluster, namespace)) for name, check in ask_cluster.CHECKS.items()]
        gpu_use = ask_cluster.gpu_use(cluster, scrapes=not settings.prometheus_url)
        checks.append(_tried("GPU use", gpu_use))
        more = all_namespaces(namespace, config)[1:]
        checks += [_tried(f"namespace {each}", ask_cluster.of_trials(cluster, each)) for each in more]
        if settings.builds_in not in all_namespaces(namespace, config):
            builds = ask_cluster.of_builds(cluster, settings.builds_in)
            checks.append(_tried(f"namespace {settings.builds_in}", builds))
        return [ok("Kubernetes API", version), *_flat(await asyncio.gather(*checks))]
    except (ApiError, Unreachable) as error:
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
            return [warning(name, "unknown: not allowed to look", ask_cluster.LOOK)]
        return [warning(name, f"unknown: {error}", "")]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return [broken(name, f"{type(error).__name__}: {error}", "")]


def _flat(found: list[Findings]) -> Findings:
    return [finding for findings in found for finding in findings]
