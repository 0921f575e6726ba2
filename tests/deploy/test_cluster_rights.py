"""deploy/clusters grants exactly what Sweepbot uses in another cluster, beside the Role for trials."""

import pytest
import yaml

from bot.platform.clusters.connections import Clusters
from bot.sweep.launch.clusters import with_cluster
from k8s.api.remote import RemoteClient
from k8s.rbac import FOR_CLUSTERS
from local.kubernetes.apiserver.api import serve
from tests.bot.operate.test_remote_clusters import WORKER, apply
from tests.bot.sweep.launch.test_cluster_choice import add, node, order, pod
from tests.deploy.kustomize import DEPLOY
from tests.scenarios.device_cluster import device_class, resource_slice
from tests.scenarios.sweep_in_memory import Clock
from tests.scenarios.two_clusters import TwoClusters


@pytest.fixture
async def west(redis, tmp_path):
    simulation = TwoClusters(redis, Clock(None))
    apply(simulation.kubernetes, "clusters/remote.yaml")
    apply(simulation.kubernetes, "namespace/rights.yaml", "sweeps")
    add(simulation.kubernetes, node("west-1", 8))
    for published in (device_class(), resource_slice("west-1", 2)):
        simulation.kubernetes.create(published)
    waiting = pod("claims", 0)
    waiting["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "two"}]
    simulation.kubernetes.create(waiting)
    server = await serve(simulation.kubernetes)
    server.tokens["work"] = WORKER
    server.kubeconfig(tmp_path / "west", "work")

    async def known(uid: str) -> str:
        return uid

    client = RemoteClient("west", str(tmp_path / "west"), "", known)
    simulation.clients.clusters = Clusters(lambda _: client)
    yield simulation, server
    await client.close()
    await server.close()


async def test_permissions_in_another_cluster_are_exactly_those_used_for_the_choice(west):
    simulation, server = west
    found = await with_cluster(order(gpus=2), simulation.clients)
    assert found.cluster == "west"
    used = {(each.group, each.resource, each.verb) for each in server.granted}
    [role] = [
        each
        for each in yaml.safe_load_all((DEPLOY / "clusters/remote.yaml").read_text())
        if each["kind"] == "ClusterRole"
    ]
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == used
    assert {(*key, verb) for key, verbs in FOR_CLUSTERS.items() for verb in verbs} == granted - {
        ("", "namespaces", "get")
    }
