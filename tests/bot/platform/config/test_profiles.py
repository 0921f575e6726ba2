"""`profiles:` and `pools:` of the configuration, what a request gets of them, and the pods."""

from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.platform.config.limits import Limits
from bot.platform.config.policy import parse_config
from bot.platform.config.profiles import chosen, shaped
from bot.sweep.launch.command_line import changed, parse
from bot.sweep.launch.plan import plan
from k8s.katib.pod_shape import PodShape
from k8s.nodes.machines import UNLIMITED
from tests.bot.factories import CONFIG, ORDER, SETTINGS
from tests.cases import cases

REPOSITORIES = "repositories:\n  digits: {url: https://git.example/digits.git}\n"
PROFILES = """\
trials: {nodes: {pool: gpus}, tolerations: [{key: nvidia.com/gpu, operator: Exists}], cpu: 2}
profiles:
  1xh100:
    gpus: 1
    cpu: 16
    whole_cpus: true
    memory: 200Gi
    shared_memory: 64Gi
    nodes: {gpu: [h100, h100-nvl], zone: a}
    tolerations: [{key: dedicated, value: h100, effect: NoSchedule}]
    resources: {rdma/hca: 1}
    scheduler: volcano
    priority_class: research
    runtime_class: nvidia
  mig: {gpus: 1, resource: nvidia.com/mig-3g.40gb}
  cpu: {gpus: 0, memory: 8Gi}
pools:
  big: {gpus: 8, memory: 1800Gi, labels: {gpu: h100}, taints: [{key: dedicated, value: h100}]}
"""
CLUSTER = parse_config(REPOSITORIES + PROFILES, "c.yaml")


def pod_of(gpus, profile=None):
    found = chosen(CLUSTER.profiles, profile, gpus)
    shape = shaped(CLUSTER.trials, found, gpus)
    order = replace(ORDER, shape=shape, request=replace(ORDER.request, gpus=gpus))
    return plan(order, SETTINGS).experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]


def refused(text):
    with pytest.raises(UserError) as caught:
        parse_config(REPOSITORIES + text, "c.yaml")
    return str(caught.value)


def test_read_profiles_keeps_their_order_and_pools():
    assert [each.name for each in CLUSTER.profiles] == ["1xh100", "mig", "cpu"]
    [pool] = CLUSTER.pools
    assert (pool.name, pool.resources["nvidia.com/gpu"], pool.resources["cpu"]) == ("pool big", 8, UNLIMITED)
    assert pool.taints == ({"key": "dedicated", "value": "h100", "effect": "NoSchedule"},)


@cases(
    ("text", "error"),
    [
        ("profiles: {a: {}}", "c.yaml:3: profiles.a: missing key: gpus"),
        ("profiles: {a: {gpu: 1}}", "unknown key. Did you mean gpus?"),
        ("profiles: {A: {gpus: 1}}", "name must have only lowercase letters"),
        ("profiles: {a: {gpus: 9}}", "must be from 0 to 8 (limits.gpus_per_trial); got 9"),
        (
            "profiles: {a: {gpus: 1, nodes_per_trial: 9}}",
            "must be from 1 to 8 (limits.nodes_per_trial); got 9",
        ),
        ("profiles: {a: {gpus: 1, nodes_per_trial: 1.5}}", "must be a whole number; got 1.5"),
        ("profiles: {a: {gpus: 1, nodes: 2}}", "For the number of nodes per trial, use nodes_per_trial"),
        ("profiles: {a: {gpus: 1, resource: gpu}}", "must be a resource such as nvidia.com/gpu"),
        ("profiles: {a: {gpus: 1, device_class: rdma.example.com}}", "whose name starts with gpu or mig"),
        ("profiles: {a: {gpus: 1, device_class: gpu.Nvidia com}}", "must be a DeviceClass whose name"),
        (
            "profiles: {a: {gpus: 1, resource: deviceclass.resource.kubernetes.io/gpu.nvidia.com}}",
            "resource must be device_class: gpu.nvidia.com",
        ),
        (
            "profiles: {a: {gpus: 1, device_class: gpu.nvidia.com, resource: amd.com/gpu}}",
            "device_class replaces resource; remove one of them. Got resource: amd.com/gpu",
        ),
        (
            "profiles: {a: {gpus: 1, device_class: gpu.nvidia.com}}\nqueues: {research: {}}",
            "device_class can't be used with queues: Kueue's quotas don't count these GPUs",
        ),
        (
            "profiles: {a: {gpus: 1, cpu: lots}}",
            'a Kubernetes quantity such as 4 or 32Gi; got "lots"',
        ),
        ("profiles: {a: {gpus: 1, resources: {hca: 1}}}", "must be a resource with a domain"),
        ("profiles: {a: {gpus: 1, nodes: {zone: []}}}", "must be a value or a list of values"),
        ("profiles: {a: {gpus: 1, whole_cpus: true}}", "whole_cpus needs cpu and memory"),
        (
            "profiles: {a: {gpus: 1, whole_cpus: true, cpu: 1500m, memory: 1Gi}}",
            "whole_cpus needs a whole number of CPUs; got cpu: 1500m",
        ),
        (
            "profiles: {a: {gpus: 1, memory: 1Gi, shared_memory: 2Gi}}",
            "shared_memory counts toward memory (1Gi) and can't exceed it; got 2Gi",
        ),
        ("pools: {a: {gpus: 1, taints: [{value: x}]}}", "missing key: key"),
        ("pools: {a: {taints: [{key: x, effect: Never}]}}", "pools.a.taints[0].effect: must be NoSchedule"),
    ],
)
def test_read_profiles_with_an_error_names_its_line(text, error):
    assert error in refused(text)


def test_pod_of_a_profile_has_all_of_it_and_prefers_machines_with_other_trials():
    pod = pod_of(1, "1xh100")
    [main] = pod["containers"]
    assert main["resources"] == {
        "limits": {"cpu": "16", "memory": "200Gi", "nvidia.com/gpu": 1, "rdma/hca": "1"},
        "requests": {"cpu": "16", "memory": "200Gi"},
    }
    assert pod["volumes"][0] == {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
    assert pod["nodeSelector"] == {"pool": "gpus", "zone": "a"}
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [term] = required["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100", "h100-nvl"]}]}
    assert [each["key"] for each in pod["tolerations"]] == ["nvidia.com/gpu", "dedicated"]
    names = ("schedulerName", "priorityClassName", "runtimeClassName")
    assert [pod[name] for name in names] == ["volcano", "research", "nvidia"]
    [preferred] = pod_of(1)["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert "affinity" not in pod_of(0, "cpu")
    [main] = pod_of(2, "mig")["containers"]
    assert main["resources"] == {"limits": {"nvidia.com/mig-3g.40gb": 2}, "requests": {"cpu": "2"}}


def test_pod_with_more_or_fewer_gpus_is_the_profile_scaled():
    [main] = pod_of(4)["containers"]
    assert main["resources"]["limits"] == {
        "cpu": "64",
        "memory": "800Gi",
        "nvidia.com/gpu": 4,
        "rdma/hca": "4",
    }
    assert pod_of(4)["volumes"][0]["emptyDir"]["sizeLimit"] == "256Gi"
    profile = replace(CLUSTER.profiles[0], gpus=8, cpu="100", memory="1Ti")
    shape = shaped(PodShape(), profile, 3)
    assert (shape.cpu, shape.memory, shape.resources) == ("37", "384Gi", {"rdma/hca": "1"})
    assert pod_of(0)["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "8Gi"}
    assert shaped(CLUSTER.trials, chosen((), None, 4), 4) is CLUSTER.trials


@pytest.mark.parametrize(
    ("typed", "profile", "gpus"),
    [
        ("", None, 1),
        ("gpus=4", None, 4),
        ("profile=mig", "mig", 1),
        ("profile=CPU", "cpu", 0),
        ("profile=1xh100 gpus=2", "1xh100", 2),
    ],
)
def test_parse_profile_brings_its_gpus(typed, profile, gpus):
    request = parse(f"branch=main space=lr {typed}", CLUSTER)
    assert (request.profile, request.gpus) == (profile, gpus)


@pytest.mark.parametrize(
    ("typed", "config", "error"),
    [
        (
            "profile=1xh10",
            CLUSTER,
            'profile= must be a configured profile; got "1xh10". Did you mean 1xh100?',
        ),
        ("profile=zzz", CLUSTER, "Available: 1xh100, mig, and cpu."),
        ("profile=x", CONFIG, "profile= can't be used: no profile is configured. Remove profile=, or ask"),
        (
            "profile=cpu gpus=2",
            CLUSTER,
            "which has no GPUs. Remove gpus=, or use profile=1xh100 or profile=mig.",
        ),
        ("profile=mig gpus=0", CLUSTER, "which has 1 GPU. Remove gpus=, or use profile=cpu."),
    ],
)
def test_parse_profile_with_an_error_says_what_can_be_used(typed, config, error):
    with pytest.raises(UserError) as caught:
        parse(f"branch=main space=lr {typed}", config)
    assert error in str(caught.value)


def test_changed_profile_replaces_the_gpus_of_the_former_one_within_the_limit():
    request = parse("branch=main space=lr profile=1xh100 gpus=4", CLUSTER)
    assert changed(request, "profile=cpu", CLUSTER).gpus == 0
    assert changed(request, "gpus=2", CLUSTER).profile == "1xh100"
    with pytest.raises(UserError, match="gpus= can't be used with profile=1xh100"):
        changed(request, "gpus=0", CLUSTER)
    config = replace(CLUSTER, limits=Limits(gpus_per_trial=2))
    with pytest.raises(UserError, match="at most 2"):
        parse("branch=main space=lr gpus=4", config)
