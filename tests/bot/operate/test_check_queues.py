"""The doctor's checks of Kueue, on the local world's queues, and of `profiles:`."""

from dataclasses import replace

import pytest

from bot.core.finding import Level
from bot.operate.check_cluster import profiles
from bot.operate.check_queues import queues
from bot.platform.config.policy import parse_config
from k8s.api.errors import ApiError
from local import kueue
from local.kubernetes.apiserver.store import Store
from tests.bot.factories import CONFIG, SETTINGS
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.queued_sweep import POLICY, create_queues

QUEUED = replace(CONFIG, **vars(POLICY))


@pytest.fixture
def store():
    found = Store()
    found.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    kueue.install(found)
    create_queues(found, 2)
    kueue.Kueue(found).reconcile()
    return found


async def examined(store, config=QUEUED):
    return await queues(DirectCluster(store), SETTINGS, config)


async def test_queues_of_a_healthy_installation_are_ok(store):
    [finding] = await examined(store)
    assert (finding.level, finding.text) == (Level.OK, "2 queues active, all priority classes exist")


async def test_queues_without_kueue_are_broken():
    [finding] = await examined(Store())
    assert (finding.level, finding.text) == (Level.BROKEN, "not installed; queues: needs it")


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "words"),
    [
        ("LocalQueue", "sweeps", "urgent", "LocalQueue urgent not found in sweeps"),
        ("ClusterQueue", "", "lab", "ClusterQueue lab isn't active: doesn't exist"),
        ("WorkloadPriorityClass", "", "sweeps-high", "(priority high) doesn't exist; its trials never start"),
    ],
)
async def test_queues_that_are_missing_are_named(store, kind, namespace, name, words):
    store.delete(kind, namespace, name)
    assert any(words in each.text and each.level is Level.BROKEN for each in await examined(store))


async def test_queues_that_are_stopped_are_broken(store):
    store.patch("ClusterQueue", "", "lab", {"spec": {"stopPolicy": "Hold"}})
    kueue.Kueue(store).reconcile()
    found = [each.text for each in await examined(store)]
    assert "ClusterQueue lab isn't active: Stopped: Can't admit new workloads: is stopped" in found
    assert any(each.startswith("LocalQueue research in sweeps isn't active") for each in found)


class WithoutCohorts(DirectCluster):
    async def list(self, kind, namespace, **more):
        if kind == "Cohort":
            raise ApiError(403, "Forbidden", "cohorts is forbidden")
        return await super().list(kind, namespace, **more)


async def test_queues_in_a_cohort_need_the_permission_to_read_cohorts(store):
    assert [each.level for each in await queues(WithoutCohorts(store), SETTINGS, QUEUED)] == [Level.OK]
    store.patch("ClusterQueue", "", "lab", {"spec": {"cohort": "all"}})
    assert [each.level for each in await examined(store)] == [Level.OK]
    [finding] = await queues(WithoutCohorts(store), SETTINGS, QUEUED)
    assert (finding.level, finding.fix) == (Level.WARNING, "kubectl apply -k deploy/queues")


async def test_queues_that_the_configuration_does_not_name_are_left_out(store):
    head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue"}
    meta = {"name": "of-others", "namespace": "sweeps"}
    store.create({**head, "metadata": meta, "spec": {"clusterQueue": "gone"}})
    assert [each.level for each in await examined(store)] == [Level.OK]


async def test_queues_with_a_default_queue_warn_about_builds_and_suggestion_services(store):
    head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue"}
    meta = {"name": "default", "namespace": "sweeps"}
    store.create({**head, "metadata": meta, "spec": {"clusterQueue": "lab"}})
    builds, services = await examined(store)
    assert (builds.level, builds.text) == (
        Level.WARNING,
        "LocalQueue default in sweeps captures builds, too",
    )
    assert services.text.startswith("LocalQueue default in sweeps captures Katib's suggestion services, too")


async def test_queues_without_kueue_need_the_priority_classes_of_pods(store):
    config = replace(CONFIG, priorities=POLICY.priorities[:1])
    [missing] = await examined(store, config)
    assert missing.text.startswith("PriorityClass sweeps-low (priority low) doesn't exist")
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    store.create({**head, "metadata": {"name": "sweeps-low"}, "value": 1})
    [finding] = await examined(store, config)
    assert finding.level is Level.OK


PROFILED = """\
repositories: {digits: {url: https://git.example/digits.git}}
profiles:
  small: {gpus: 1, cpu: 4, priority_class: research}
  large: {gpus: 8, runtime_class: nvidia}
"""
POOL = "pools: {h100: {gpus: 8}}\n"


def with_classes(*names):
    """One node of 4 GPUs, and these classes."""
    store = Store()
    sizes = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"}
    node = store.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}})
    store.set_status(node, {"capacity": sizes, "allocatable": sizes})
    for version, kind, name in names:
        store.create({"apiVersion": version, "kind": kind, "metadata": {"name": name}})
    return DirectCluster(store)


async def found_by(text, *names):
    config = parse_config(text, "c.yaml")
    return [(one.level, one.text) for one in await profiles(with_classes(*names), config)]


async def test_profiles_without_machine_or_class_are_broken():
    assert await found_by(PROFILED) == [
        ("broken", "large fits no machine. The largest machine that it can use (node gpu-1) has 4 GPUs."),
        ("broken", "PriorityClass research doesn't exist"),
        ("broken", "RuntimeClass nvidia doesn't exist"),
    ]


async def test_profiles_that_fit_are_ok():
    classes = (
        ("scheduling.k8s.io/v1", "PriorityClass", "research"),
        ("node.k8s.io/v1", "RuntimeClass", "nvidia"),
    )
    assert await found_by(PROFILED + POOL, *classes) == [("ok", "2 profiles fit this cluster")]
