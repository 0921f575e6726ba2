"""What the doctor says about machine profiles."""

from bot.config.policy import parse_config
from bot.doctor.profiles import profiles
from local.kubernetes.apiserver.store import Store
from tests.scenarios.fakes import DirectCluster

TEXT = """\
repositories: {digits: {url: https://git.example/digits.git}}
profiles:
  small: {gpus: 1, cpu: 4, priority_class: research}
  large: {gpus: 8, runtime_class: nvidia}
"""
POOL = "pools: {h100: {gpus: 8}}\n"


def cluster(*names):
    """One node of 4 GPUs, and these classes."""
    store = Store()
    sizes = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"}
    node = store.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}})
    store.set_status(node, {"capacity": sizes, "allocatable": sizes})
    for version, kind, name in names:
        store.create({"apiVersion": version, "kind": kind, "metadata": {"name": name}})
    return DirectCluster(store)


async def found(text, *names):
    config = parse_config(text, "c.yaml")
    return [(one.level, one.found) for one in await profiles(cluster(*names), config)]


async def test_profiles_without_machine_or_class_are_broken():
    assert await found(TEXT) == [
        ("broken", "large fits no machine. The largest machine that it can use (node gpu-1) has 4 GPUs."),
        ("broken", "PriorityClass research doesn't exist"),
        ("broken", "RuntimeClass nvidia doesn't exist"),
    ]


async def test_profiles_that_fit_are_ok():
    classes = (
        ("scheduling.k8s.io/v1", "PriorityClass", "research"),
        ("node.k8s.io/v1", "RuntimeClass", "nvidia"),
    )
    assert await found(TEXT + POOL, *classes) == [("ok", "2 profiles fit this cluster")]


async def test_profiles_are_not_checked_without_any():
    assert await found("repositories: {d: {url: https://git.example/d.git}}") == []
