"""Which requests no machine can ever run, and what is offered instead."""

from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.platform.config.policy import parse_config
from bot.platform.config.teams import Team
from bot.sweep.launch.capacity import capacity_refusal, described, unfitting
from bot.sweep.launch.command_line import parse
from bot.sweep.launch.plan import plan
from bot.sweep.launch.pods import pods_of
from bot.sweep.launch.queueing import Queueing, check_claims
from k8s.api.errors import ApiError
from k8s.nodes.devices import read_devices, with_devices
from k8s.nodes.listed import list_machines
from k8s.nodes.machines import read_machine
from tests.bot.factories import CONFIG, ORDER, OWNER, SETTINGS, SPACE
from tests.cases import cases
from tests.scenarios.device_cluster import SELECTOR, device_class, resource_slice

PROFILES = """\
repositories: {digits: {url: https://git.example/digits.git}}
profiles:
  1xh100: {gpus: 1, cpu: 16, memory: 200Gi, nodes: {gpu: h100}}
  8xh100: {gpus: 8, cpu: 128, memory: 1600Gi, nodes: {gpu: h100}}
  cpu: {gpus: 0, cpu: 4, memory: 16Gi}
"""
CLUSTER = parse_config(PROFILES, "c.yaml")
CLAIMS = """\
repositories: {digits: {url: https://git.example/digits.git}}
profiles: {h100: {gpus: 1, cpu: 16, device_class: gpu.nvidia.com}}
"""
POOL = "pools:\n  big: {gpus: 8, cpu: 190, labels: {gpu: h100}}\n"


def node(gpus=4, *, cpu="94500m", memory="1056Gi", labels=None, taints=(), capacity=None, name="gpu-1"):
    allocatable = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(gpus)}
    return {
        "metadata": {"name": name, "labels": {"gpu": "h100"} if labels is None else labels},
        "spec": {"taints": [*taints]},
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable | {"nvidia.com/gpu": str(capacity or gpus)},
        },
    }


def refusal(typed, *nodes, config=CLUSTER, owner=OWNER):
    request = parse(f"branch=main space=lr {typed}", config)
    pods = pods_of(request, SPACE, owner, config)
    profile = pods.profile.name if pods.profile else ""
    made = plan(replace(ORDER, request=request, shape=pods.shape, profile=profile), SETTINGS)
    return capacity_refusal(request, made, owner, config, map(read_machine, nodes))


def taint(key, value="", effect="NoSchedule"):
    return {"key": key, "value": value, "effect": effect}


def test_capacity_refusal_names_the_largest_that_fits():
    assert refusal("profile=8xh100", node(), node(2, name="gpu-2")) == (
        "profile=8xh100 can't run on this cluster: a trial requests 8 GPUs, 128 CPUs, and 1.562 TiB of "
        "memory. The largest machine that it can use (node gpu-1) has 4 GPUs, 94.5 CPUs, and "
        "1.031 TiB of memory. "
        "*Fix:* Use gpus=4 or profile=1xh100."
    )
    nodes = [node(cpu="10", name="small"), node(cpu="96", name="big"), node(cpu="20", name="medium")]
    assert "(node big) has 4 GPUs" in refusal("profile=8xh100", *nodes)
    config = parse_config(PROFILES + POOL, "c.yaml")
    assert refusal("profile=8xh100", config=config) == ""
    smaller = replace(config, pools=(replace(config.pools[0], labels={"gpu": "a100"}),))
    assert "excluded by missing label gpu=h100" in refusal("profile=8xh100", config=smaller)
    assert "Ask an admin to check `profiles` and `pools`" in refusal("", node(0))
    [(profile, why)] = unfitting(CLUSTER, [read_machine(node())])
    assert (profile.name, "has 4 GPUs" in why) == ("8xh100", True)


@pytest.mark.parametrize(("gpus", "most"), [(1, 1), (3, 3)])
def test_capacity_refusal_offers_the_most_gpus_that_fit(gpus, most):
    assert f"*Fix:* Use gpus={most}" in refusal("profile=1xh100 gpus=4", node(gpus))


@cases(
    ("typed", "nodes"),
    [
        ("", [node()]),
        ("gpus=4", [node()]),
        ("profile=cpu", [node(0, labels={})]),
        ("profile=8xh100", [node(), node(8, cpu="128", memory="1600Gi")]),
        # One GPU is broken, or the device plugin restarts.
        ("profile=8xh100", [node(0, cpu="128", memory="1600Gi", capacity=8)]),
        ("", [node(taints=[taint("node.kubernetes.io/unreachable", effect="NoExecute")])]),
        ("", [node(taints=[taint("slow", effect="PreferNoSchedule")])]),
        # The admission plugin ExtendedResourceToleration tolerates it.
        ("", [node(taints=[taint("nvidia.com/gpu", "present")])]),
        ("", [node(memory="1e12")]),
    ],
)
def test_capacity_refusal_of_what_can_run_is_empty(typed, nodes):
    assert refusal(typed, *nodes) == ""


def test_capacity_refusal_without_profiles_compares_only_the_gpus():
    small, large = node(1), node(4, cpu="1", taints=[taint("team", "vision")], name="gpu-2")
    assert refusal("gpus=8", small, large, config=CONFIG) == (
        "gpus=8 can't run on this cluster: a trial requests 8 GPUs, and the largest node (gpu-2) has 4 GPUs. "
        "*Fix:* Use gpus=4, or ask an admin to declare an autoscaled pool under `pools` in the configuration."
    )
    pool = parse_config(PROFILES + POOL, "c.yaml").pools
    assert refusal("gpus=8", small, config=replace(CONFIG, pools=pool)) == ""
    assert refusal("gpus=4", small, large, config=CONFIG) == ""
    assert refusal("gpus=8", node(0), config=CONFIG) == ""  # the nodes with GPUs are scaled to zero
    bare = node(0)
    for sizes in (bare["status"]["allocatable"], bare["status"]["capacity"]):
        del sizes["nvidia.com/gpu"]
    assert "(node gpu-1) has 0 GPUs" in refusal("", bare)
    assert "(node gpu-2) has 1 GPU," in refusal("profile=8xh100", bare, node(1, cpu="8", name="gpu-2"))
    assert refusal("gpus=8", bare, config=CONFIG) == ""


def test_capacity_refusal_names_labels_and_taints_and_lets_a_team_use_its_machines():
    big = {"cpu": "128", "memory": "1600Gi"}
    tainted = node(8, **big, taints=[taint("team", "vision"), taint("old", "yes")])
    found = refusal("profile=8xh100", tainted, node(8, **big, labels={"gpu": "a100"}))
    excluded = "excluded by taint team=vision, taint old=yes, and missing label gpu=h100."
    assert f"All 2 machines large enough are {excluded}" in found
    team = Team(
        name="vision",
        members=(OWNER,),
        nodes={"team": "vision"},
        tolerations=({"key": "team", "value": "vision"},),
    )
    reserved = node(labels={"gpu": "h100", "team": "vision"}, taints=[taint("team", "vision")])
    config = replace(CLUSTER, teams=(team,))
    assert refusal("", reserved, config=config) == ""
    assert "excluded by taint team=vision" in refusal("", reserved, config=config, owner="UOTHER")
    chose_it = replace(config, self_assigned=frozenset({OWNER}))
    assert "excluded by taint team=vision" in refusal("", reserved, config=chose_it)
    assert "excluded by missing label team=vision" in refusal("", node(), config=config)


@pytest.mark.parametrize(("size", "text"), [(2**40, "1 TiB"), (2**40 - 2**30, "1023 GiB"), (2**20, "1 MiB")])
def test_memory_is_in_the_largest_unit_that_it_reaches(size, text):
    assert described({"memory": size}) == f"{text} of memory"


class WithDevices:
    """An API server that lists these kinds, and answers with a status for the others."""

    def __init__(self, status=404, **kinds):
        self.status, self.kinds = status, {"Node": [node(0)]} | kinds

    async def list(self, kind, _):
        if kind not in self.kinds:
            raise ApiError(self.status, "", "")
        return self.kinds[kind]


SLICES = [resource_slice("gpu-1", 1)]
DISTANT = [each | {"spec": {**each["spec"], "nodeName": None, "allNodes": True}} for each in SLICES]
MEMORY = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"
PARTIAL = f"{SELECTOR} && device.attributes['gpu.nvidia.com'].uuid == 'GPU-gpu-1-0'"


OWN = device_class("gpu-a", PARTIAL)
EXTENDED = device_class() | {"spec": device_class()["spec"] | {"extendedResourceName": "nvidia.com/gpu"}}


@pytest.mark.parametrize(
    ("cluster", "fits"),
    [
        (WithDevices(ResourceSlice=SLICES, DeviceClass=[device_class()]), True),
        (
            WithDevices(ResourceSlice=SLICES, DeviceClass=[device_class(), OWN]),
            True,
        ),
        (WithDevices(ResourceSlice=SLICES, DeviceClass=[device_class(expression=MEMORY)]), True),
        (WithDevices(ResourceSlice=SLICES, DeviceClass=[EXTENDED]), True),
        (WithDevices(ResourceSlice=DISTANT, DeviceClass=[device_class()]), True),
        (WithDevices(403), True),
        (WithDevices(403, ResourceSlice=SLICES), True),
        (WithDevices(ResourceSlice=SLICES, DeviceClass=[device_class("gpu.example.com", MEMORY)]), False),
        (WithDevices(ResourceSlice=SLICES[:0]), False),
        (WithDevices(404), False),
    ],
)
async def test_claims_are_refused_only_where_too_few_devices_are_known_to_exist(cluster, fits):
    claims = parse_config(CLAIMS, "c.yaml")
    found = unfitting(claims, await list_machines(cluster))
    assert [profile.name for profile, _ in found] == ([] if fits else ["h100"])


@pytest.mark.parametrize(
    ("classes", "extra", "refused"),
    [
        ([device_class()], [], True),
        ([EXTENDED], [], False),  # the scheduler makes the claim
        ([device_class(), EXTENDED | {"metadata": {"name": "h100"}}], [], False),  # by another class
        ([device_class()], [node(1, name="plugin")], False),
        ([device_class(expression=MEMORY)], [], False),  # unknown
    ],
)
async def test_plain_gpus_are_refused_where_only_claims_can_get_any(classes, extra, refused):
    cluster = WithDevices(ResourceSlice=SLICES, DeviceClass=classes, Node=[node(0), *extra])
    order = replace(ORDER, request=parse("branch=main space=lr gpus=1", CONFIG))
    text = capacity_refusal(order.request, plan(order, SETTINGS), OWNER, CONFIG, await list_machines(cluster))
    expected = (
        "gpus=1 can't run on this cluster: a trial requests nvidia.com/gpu, and the nodes offer their GPUs "
        "only by DeviceClass gpu.nvidia.com. *Fix:* Ask an admin to declare in the configuration a profile "
        "with `device_class` under `profiles`, or an autoscaled pool with nvidia.com/gpu under `pools`."
    )
    assert text == (expected if refused else "")
    config = replace(CONFIG, pools=parse_config(PROFILES + POOL, "c.yaml").pools)
    args = order.request, plan(order, SETTINGS), OWNER, config, await list_machines(cluster)
    assert capacity_refusal(*args) == ""


def test_claimed_gpus_are_named_as_gpus_and_their_pool_can_scale_from_zero():
    pool = "pools: {p: {gpus: 8, resource: deviceclass.resource.kubernetes.io/gpu.nvidia.com}}\n"
    assert refusal("gpus=8", config=parse_config(CLAIMS.replace("cpu: 16", "cpu: 4") + pool, "c.yaml")) == ""
    claims = parse_config(CLAIMS, "c.yaml")
    found = with_devices([node(0)], read_devices([device_class()], [resource_slice("gpu-1", 2)]))
    assert refusal("", *found, config=claims) == ""
    text = refusal("gpus=4", *found, config=claims)
    assert "a trial requests 4 GPUs and 64 CPUs." in text
    assert "The largest machine that it can use (node gpu-1) has 2 GPUs." in text
    resource = claims.profiles[0].requested
    check_claims(resource, Queueing())
    with pytest.raises(UserError, match=r"gpu\.nvidia\.com can't be queued"):
        check_claims(resource, Queueing(queue="research"))
