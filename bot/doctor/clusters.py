"""Check each cluster of `clusters:` beside the home cluster, as far as trials need it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from bot.clusters.identity import Identities
from bot.config.clusters import TrialCluster, remote
from bot.config.policy import Config, namespaces_in
from bot.config.settings import Settings
from bot.doctor import probe_cluster
from bot.doctor.findings import Finding, broken, ok
from bot.doctor.operators import check_name, operators
from bot.doctor.queues import queues
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError, ClusterUnreachableError, UnreachableError
from k8s.api.remote import RemoteClient
from k8s.rbac import FOR_CLUSTERS, FOR_TRIALS

Findings = list[Finding]
Checked = Callable[[str, Awaitable[Findings]], Awaitable[Findings]]  # bot.doctor.checks.checked

GRANT = "kubectl apply -f deploy/clusters/remote.yaml  # in that cluster"
KATIB = ("Katib CRDs", "Katib deployments", "Katib webhooks", "GPU device plugin", "GPU nodes")


async def clusters(home: KubernetesClient, settings: Settings, config: Config, checked: Checked) -> Findings:
    """Return no findings without `clusters:`. Clusters are checked at the same time. Raises nothing."""
    identities = Identities(home, settings.k8s_namespace)
    each = (_cluster(one, identities, settings, config, checked) for one in remote(config.clusters))
    return [finding for findings in await asyncio.gather(*each) for finding in findings]


async def _cluster(
    cluster: TrialCluster, identities: Identities, settings: Settings, config: Config, checked: Checked
) -> Findings:
    known = partial(identities.stored, cluster.name)
    api = RemoteClient(cluster.name, cluster.kubeconfig, cluster.context, known)
    name = f"cluster {cluster.name}"
    try:
        version = await api.version()
    except ClusterUnreachableError as failure:
        return [broken(name, failure.why, failure.fix)]
    except (ApiError, UnreachableError) as error:
        return [broken(name, str(error), "")]
    else:
        found = await asyncio.gather(*(checked(*one) for one in _checks(api, cluster, settings, config)))
        flat = (finding for findings in found for finding in findings)
        return [ok(name, version), *(replace(one, check=f"{cluster.name}: {one.check}") for one in flat)]
    finally:
        await api.close()


def _checks(
    api: KubernetesClient, cluster: TrialCluster, settings: Settings, config: Config
) -> list[tuple[str, Awaitable[Findings]]]:
    places = namespaces_in(cluster, settings.k8s_namespace, config)
    elsewhere = {"k8s_namespace": places[0], "build_namespace": "none there"}
    there = settings.model_copy(update=elsewhere)
    only = replace(config, namespaces=places[1:])
    return [
        ("RBAC", _permissions(api)),
        *((f"RBAC in {each}", _of_trials(api, each)) for each in places),
        *((f"namespace {each}", probe_cluster.CHECKS["namespace"](api, each)) for each in places),
        *((name, probe_cluster.CHECKS[name](api, places[0])) for name in KATIB),
        ("Kueue", queues(api, there, only)),
        (check_name(config), operators(api, config)),
    ]


async def _of_trials(api: KubernetesClient, namespace: str) -> Findings:
    fix = f"kubectl -n {namespace} apply -f deploy/namespace/rights.yaml  # in that cluster"
    return [await probe_cluster.granted(api, namespace, FOR_TRIALS, fix)]


async def _permissions(api: KubernetesClient) -> Findings:
    return [replace(await probe_cluster.granted(api, "", FOR_CLUSTERS, GRANT), check="RBAC of free GPUs")]
