"""The doctor's checks of Kueue, on the local world's queues."""

from dataclasses import replace

import pytest

from bot.config.queues import QueuePolicy
from bot.doctor.findings import Level
from bot.doctor.queues import queues
from local import kueue
from local.kubernetes.apiserver.store import Store
from tests.bot.factories import CONFIG, SETTINGS
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.queued_sweep import POLICY, create_queues

QUEUED = replace(CONFIG, queueing=POLICY)


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
    assert (finding.level, finding.found) == (Level.OK, "2 queues active, all priority classes exist")


async def test_queues_without_configuration_are_not_checked(store):
    assert await examined(store, CONFIG) == []


async def test_queues_without_kueue_are_broken():
    [finding] = await examined(Store())
    assert (finding.level, finding.found) == (Level.BROKEN, "not installed; queues: needs it")


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
    assert any(words in each.found and each.level is Level.BROKEN for each in await examined(store))


async def test_queues_that_are_stopped_are_broken(store):
    store.patch("ClusterQueue", "", "lab", {"spec": {"stopPolicy": "Hold"}})
    kueue.Kueue(store).reconcile()
    found = [each.found for each in await examined(store)]
    assert "ClusterQueue lab isn't active: Stopped: Can't admit new workloads: is stopped" in found
    assert any(each.startswith("LocalQueue research in sweeps isn't active") for each in found)


async def test_queues_with_a_default_queue_warn_about_builds(store):
    head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue"}
    meta = {"name": "default", "namespace": "sweeps"}
    store.create({**head, "metadata": meta, "spec": {"clusterQueue": "lab"}})
    [finding] = await examined(store)
    assert (finding.level, finding.found) == (
        Level.WARNING,
        "LocalQueue default in sweeps captures builds, too",
    )


async def test_queues_without_kueue_need_the_priority_classes_of_pods(store):
    config = replace(CONFIG, queueing=QueuePolicy(priorities=POLICY.priorities[:1]))
    [missing] = await examined(store, config)
    assert missing.found.startswith("PriorityClass sweeps-low (priority low) doesn't exist")
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    store.create({**head, "metadata": {"name": "sweeps-low"}, "value": 1})
    [finding] = await examined(store, config)
    assert finding.level is Level.OK
