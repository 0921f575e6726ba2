"""What the doctor says about GPUs of ResourceSlices."""

from dataclasses import replace

import pytest

from bot.operate.check_cluster import profiles
from bot.operate.check_devices import device_classes
from bot.operate.check_gpus import gpu_nodes
from bot.platform.config.policy import parse_config
from k8s.api.errors import ApiError
from k8s.nodes.listed import list_nodes
from local import cluster_fixtures
from local.kubernetes.apiserver.store import Store
from tests.bot.factories import CONFIG
from tests.bot.sweep.launch.test_cluster_choice import add, node
from tests.scenarios.device_cluster import device_class, publish, resource_slice
from tests.scenarios.fakes import DirectCluster

TEXT = """\
repositories: {digits: {url: https://git.example/digits.git}}
profiles: {h100: {gpus: 1, device_class: gpu.nvidia.com}}
"""
CLAIMING = replace(CONFIG, profiles=parse_config(TEXT, "c.yaml").profiles)


@pytest.fixture
def store():
    found = Store()
    cluster_fixtures.install(found, [])
    add(found, node("n1", 0))
    return found


async def examined(store, config=CLAIMING, *, prometheus=False):
    found = await device_classes(DirectCluster(store), config, prometheus=prometheus)
    return [(each.level, each.text) for each in found]


async def test_cluster_without_slices_has_no_finding(store):
    assert await examined(store, CONFIG) == []


async def test_server_that_does_not_serve_the_kinds_has_no_finding():
    class Old:
        async def list(self, *_, **__):
            raise ApiError(404, "", "404 page not found")

    assert await device_classes(Old(), CONFIG, prometheus=True) == []
    [found] = await device_classes(Old(), CLAIMING, prometheus=True)
    assert (found.level, found.fix) == ("broken", "remove device_class from h100 under profiles:")
    assert "doesn't serve resource.k8s.io/v1" in found.text


async def test_missing_permission_is_unknown_where_it_is_needed():
    class Denied:
        async def list(self, *_, **__):
            raise ApiError(403, "Forbidden", "resourceslices is forbidden")

    [found] = await device_classes(Denied(), CONFIG, prometheus=False)
    assert (found.level, found.fix) == ("warning", "kubectl apply -k deploy/usage")
    assert await device_classes(Denied(), CLAIMING, prometheus=True)
    assert await device_classes(Denied(), CONFIG, prometheus=True) == []


async def test_published_gpus_are_counted_by_class_and_fit_the_profile(store):
    publish(store, gpus=4)
    cluster = DirectCluster(store)
    said = "gpu.nvidia.com has 4 GPUs; a profile names them by `device_class: gpu.nvidia.com`"
    assert await examined(store) == [("ok", said)]
    assert [each.level for each in await profiles(cluster, CLAIMING)] == ["ok"]
    assert [each.text for each in gpu_nodes(await list_nodes(cluster))] == ["4 GPUs on 1 node"]


async def test_trials_without_a_profile_request_gpus_that_no_class_offers(store):
    publish(store)
    *_, last = await examined(store, CONFIG)
    assert last == ("broken", "without profiles:, trials request nvidia.com/gpu, which no node offers")
    add(store, node("n2", 4))
    assert [level for level, _ in await examined(store, CONFIG)] == ["ok"]


async def test_class_that_offers_a_resource_is_named_as_such(store):
    made = device_class()
    made["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    store.create(made)
    store.create(resource_slice("n1", 2))
    wrong, counted = await examined(store)
    assert wrong == ("broken", "gpu.nvidia.com offers its GPUs as nvidia.com/gpu")
    assert counted[1].endswith("`resource: nvidia.com/gpu`")


async def test_what_cannot_be_claimed_or_counted_is_reported(store):
    store.create(device_class("gpu.example.com", "true"))
    store.create(resource_slice("n1", 2))
    assert await examined(store) == [
        ("broken", "gpu.nvidia.com of profile h100 doesn't exist"),
        ("warning", "GPUs of gpu.example.com aren't counted: Sweepbot can't read the selectors"),
    ]


async def test_gpus_that_a_device_plugin_offers_too_are_named_by_node(store):
    add(store, node("n2", 4))
    store.create(device_class())
    for name in ("n1", "n2"):
        store.create(resource_slice(name, 4))
    *_, both = await examined(store)
    assert both[0] == "warning"
    assert "offer the GPUs of n2: they count twice" in both[1]


async def test_devices_that_several_nodes_can_reach_are_not_counted(store):
    made = resource_slice("n1", 2)
    made["spec"] = {**made["spec"], "nodeName": None, "allNodes": True}
    store.create(device_class())
    store.create(made)
    said = "GPUs of gpu.nvidia.com that several nodes can reach aren't counted; sweeps with it always fit"
    assert await examined(store) == [("warning", said)]


async def test_prometheus_misses_claims(store):
    publish(store)
    requests = [{"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    meta = {"name": "c", "namespace": "default"}
    store.create({**head, "metadata": meta, "spec": {"devices": {"requests": requests}}})
    *_, last = await examined(store, prometheus=True)
    assert last[0] == "warning"
    assert "kube-state-metrics doesn't count" in last[1]
