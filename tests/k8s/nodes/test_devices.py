"""GPUs of ResourceSlices and ResourceClaims, as nodes and pods have them afterwards."""

import pytest

from k8s.nodes.devices import read_class, read_devices, unclaimed, with_claims, with_devices
from k8s.nodes.gpu_pods import GpuPods, read_gpu_pod
from k8s.nodes.gpus import node_sizes, read_node
from k8s.nodes.listed import machines
from k8s.objects import CLASS_PREFIX
from tests.scenarios.device_cluster import device_class, resource_slice

GPU_CLASS = f"{CLASS_PREFIX}gpu.nvidia.com"
NODE = {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "8", "nvidia.com/gpu": "0"}}}
MIG = device_class(
    "mig.nvidia.com", device_class()["spec"]["selectors"][0]["cel"]["expression"][:-5] + "'mig'"
)


def sizes(slices, *classes, node=NODE):
    [found] = with_devices([node], read_devices(classes or [device_class()], slices))
    return node_sizes(found)


def changed(made, **spec):
    return {**made, "spec": {**made["spec"], **spec}}


def claim(name="c1", *devices, count=1, pods=("p1",), **request):
    exact = {"deviceClassName": "gpu.nvidia.com", "count": count, **request}
    results = [{"request": "gpus", "driver": "gpu.nvidia.com", "pool": "n1", "device": d} for d in devices]
    allocation = {"allocation": {"devices": {"results": results}}} if devices else {}
    reserved = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods if devices]
    return {
        "metadata": {"name": name, "namespace": "sweeps"},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exact}]}},
        "status": {**allocation, "reservedFor": reserved},
    }


def pod(name="p1", *claims, node="n1", template=True):
    key = "gpus"
    spec = {"containers": [{"name": "collector"}, {"name": "main", "resources": {"claims": [{"name": key}]}}]}
    spec["resourceClaims"] = [{"name": key, "resourceClaimTemplateName": "t"}]
    statuses = [{"name": f"{key}-{n}", "resourceClaimName": each} for n, each in enumerate(claims)]
    status = {"phase": "Running" if node else "Pending", "resourceClaimStatuses": statuses}
    return {
        "metadata": {"name": name, "namespace": "sweeps"},
        "spec": spec | ({"nodeName": node} if node else {}),
        "status": status,
    }


def held(pods, claims, slices=(), classes=()):
    devices = read_devices(classes or [device_class()], slices or [resource_slice("n1", 4)], claims)
    return [*map(read_gpu_pod, with_claims(pods, devices))]


def test_node_has_its_devices_beside_what_a_plugin_left():
    assert sizes([resource_slice("n1", 4), resource_slice("n2", 2)]) == {GPU_CLASS: (4, 4)}
    assert read_node({"metadata": {"name": "n1"}, "status": {}}) is None


def test_only_the_newest_generation_of_a_pool_counts_and_a_missing_slice_makes_it_unusable():
    old, new = resource_slice("n1", 8), resource_slice("n1", 4)
    new = changed(new, pool={"name": "n1", "generation": 2, "resourceSliceCount": 1})
    assert sizes([old, new]) == {GPU_CLASS: (4, 4)}
    torn = changed(new, pool={"name": "n1", "generation": 3, "resourceSliceCount": 2})
    assert sizes([old, new, torn]) == {GPU_CLASS: (4, 0)}


def test_tainted_device_is_there_but_cannot_be_allocated():
    made = resource_slice("n1", 2)
    made["spec"]["devices"][0]["taints"] = [{"key": "gpu.nvidia.com/unhealthy", "effect": "NoSchedule"}]
    made["spec"]["devices"][1]["taints"] = [{"key": "gpu.nvidia.com/old", "effect": "None"}]
    assert sizes([made]) == {GPU_CLASS: (2, 1)}


def test_class_with_an_extended_resource_name_counts_under_it():
    made = changed(device_class(), extendedResourceName="nvidia.com/gpu")
    assert sizes([resource_slice("n1", 4)], made) == {"nvidia.com/gpu": (4, 4)}


def test_gpus_that_a_device_plugin_offers_too_count_once():
    made = changed(device_class(), extendedResourceName="nvidia.com/gpu")
    size = {"cpu": "8", "nvidia.com/gpu": "4"}
    both = {"metadata": {"name": "n1"}, "status": {"capacity": size, "allocatable": size}}
    assert sizes([resource_slice("n1", 4)], made, node=both) == {"nvidia.com/gpu": (4, 4)}


def test_gpu_that_is_divided_on_demand_counts_once_as_a_whole():
    made = resource_slice("n1", 1)
    counters = [{"counterSet": "gpu-0", "counters": {}}]
    part = {"attributes": {"type": {"string": "mig"}}, "consumesCounters": counters}
    parts = [{"name": f"gpu-0-mig-{n}", **part} for n in range(7)]
    made["spec"]["devices"] = [made["spec"]["devices"][0] | {"consumesCounters": counters}, *parts]
    assert sizes([made], device_class(), MIG) == {GPU_CLASS: (1, 1)}
    [found] = held([pod("p1", "c1")], [claim("c1", "gpu-0-mig-3")], [made], [device_class(), MIG])
    assert found.sizes == {GPU_CLASS: 1}
    before_gpu = device_class("gpu-parts", MIG["spec"]["selectors"][0]["cel"]["expression"])
    assert sizes([made], device_class(), before_gpu) == {GPU_CLASS: (1, 1)}
    [machine] = machines([NODE], read_devices([device_class(), MIG], [made]))
    assert {name: size for name, size in machine.resources.items() if name.startswith(CLASS_PREFIX)} == {
        GPU_CLASS: 1,
        f"{CLASS_PREFIX}mig.nvidia.com": 7,
    }


def test_device_of_two_classes_counts_for_the_one_with_more_conditions():
    expression = device_class()["spec"]["selectors"][0]["cel"]["expression"]
    own = device_class("gpu-h100", f"{expression} && device.attributes['gpu.nvidia.com'].uuid == 'GPU-n1-0'")
    found = sizes([resource_slice("n1", 3)], device_class(), own)
    assert found == {GPU_CLASS: (2, 2), f"{CLASS_PREFIX}gpu-h100": (1, 1)}
    [machine] = machines([NODE], read_devices([device_class(), own], [resource_slice("n1", 3)]))
    assert (machine.resources[GPU_CLASS], machine.resources[f"{CLASS_PREFIX}gpu-h100"]) == (3, 1)


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        "device.driver == 'a' || device.driver == 'b'",
        "device.capacity['d'].memory >= quantity('1Gi')",
    ],
)
def test_selector_in_another_form_counts_nothing(expression):
    made = device_class(expression=expression)
    assert read_class(made).conditions is None
    assert sizes([resource_slice("n1", 4)], made) == {}


def test_devices_of_other_classes_drivers_and_of_no_single_node_do_not_count():
    assert sizes([resource_slice("n1", 4)], device_class("rdma.example.com")) == {}
    assert sizes([resource_slice("n1", 4, "gpu.example.com")]) == {}
    assert sizes([changed(resource_slice("n1", 4), nodeName=None, allNodes=True)]) == {}


def test_pod_holds_what_its_claims_allocated():
    [found] = held([pod("p1", "c1", "c2")], [claim("c1", "gpu-0", "gpu-1"), claim("c2", "gpu-2")])
    assert (found.gpus, found.sizes, found.node) == (3, {GPU_CLASS: 3}, "n1")


def test_pod_that_waits_wants_what_its_claim_requests():
    waiting = pod("p1", "c1", node="")
    message = (
        "0/2 nodes are available: 2 cannot allocate all claims. preemption: 0/2 nodes are available: 2 x."
    )
    no = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    waiting["status"]["conditions"] = [no]
    [found] = held([waiting], [claim("c1", count=2)])
    assert (found.gpus, found.wanted, found.lacks_gpus) == (0, 2, True)
    [found] = held([waiting], [claim("c1", count=None, allocationMode="All")])
    assert found.wanted == 1, "a node's number is unknown"


def test_shared_claim_counts_for_the_first_pod_only():
    first, second = held([pod("p1", "c1"), pod("p2", "c1")], [claim("c1", "gpu-0", pods=("p1", "p2"))])
    assert (first.gpus, second) == (1, None)


def test_shared_claim_counts_once_while_it_waits_and_for_the_next_pod_when_the_first_has_ended():
    waiting = [pod("p2", "c1", node=""), pod("p1", "c1", node="")]
    assert [each and each.wanted for each in held(waiting, [claim("c1", count=2)])] == [None, 2]
    [left] = held([pod("p2", "c1")], [claim("c1", "gpu-0", pods=("p1", "p2"))])
    assert left.gpus == 1


def test_claimed_gpus_count_beside_those_that_a_container_requests():
    made = pod("p1", "c1")
    made["spec"]["containers"][1]["resources"]["limits"] = {GPU_CLASS: "1"}
    [found] = held([made], [claim("c1", "gpu-0", "gpu-1")])
    assert found.sizes == {GPU_CLASS: 3}


def test_device_that_is_not_published_any_more_stays_allocated():
    [found] = held([pod("p1", "c1")], [claim("c1", "gpu-9")])
    assert found.sizes == {GPU_CLASS: 1}


def test_unclaimed_devices_are_those_that_only_requests_of_pods_hold():
    watched = claim("c2", "gpu-1")
    watched["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    requested = claim("c3", "gpu-2")
    requested["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    claims = [claim("c0"), claim("c1", "gpu-0"), watched, requested]
    left = unclaimed(read_devices([device_class()], [resource_slice("n1", 4)], claims))
    assert [name for _, _, name in left.known] == ["gpu-1", "gpu-2", "gpu-3"]


def test_access_of_an_administrator_allocates_nothing():
    watched = claim("c1", "gpu-0", adminAccess=True)
    watched["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    assert held([pod("p1", "c1")], [watched]) == [None]


def test_watched_pods_with_claims_are_kept_until_they_end():
    known = GpuPods()
    known.put(pod("p1", "c1"))
    assert not known.pods
    [kept] = known.claiming.values()
    assert held([kept], [claim("c1", "gpu-0")])[0].gpus == 1
    known.put({**pod("p1", "c1"), "status": {"phase": "Succeeded"}})
    assert not known.claiming
