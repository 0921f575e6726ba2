"""Small records in ConfigMaps: several writers, damaged entries, and a ConfigMap that is full."""

import pytest
from pydantic import TypeAdapter

from bot.platform.storage.configmaps import ConfigMapStore
from k8s.api.errors import ApiError
from k8s.objects import Ref
from local.kubernetes.apiserver.store import Store
from tests.scenarios.fakes import DirectCluster

ADDRESS = Ref("ConfigMap", "sweeps", "sweepbot-numbers")


@pytest.fixture
def cluster():
    kubernetes = Store()
    kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    return DirectCluster(kubernetes)


def numbers(cluster):
    labels = (("sweepbot/kind", "numbers"),)
    return ConfigMapStore(cluster, "sweeps", ADDRESS.name, TypeAdapter(int), labels=labels)


async def test_configmap_store_of_two_writers_keeps_what_each_wrote(cluster):
    one, two = numbers(cluster), numbers(cluster)
    absent = await one.read()
    assert (absent.values, absent.version) == ({}, "")
    await one.write({"a": 1, "b": 2})
    await two.write({"c": 3, "b": None})
    found = await one.read()
    assert (found.values, found.texts) == ({"a": 1, "c": 3}, {"a": "1", "c": "3"})
    labels = cluster.store.get("ConfigMap", "sweeps", "sweepbot-numbers")["metadata"]["labels"]
    assert labels == {"app.kubernetes.io/managed-by": "sweepbot", "sweepbot/kind": "numbers"}


async def test_configmap_store_rejects_a_write_from_an_old_version(cluster):
    one, two = numbers(cluster), numbers(cluster)
    first = await one.write({"a": 1}, "")
    with pytest.raises(ApiError) as both_created:
        await two.write({"a": 2}, "")
    assert both_created.value.exists
    second = await one.write({"a": 3}, first)
    with pytest.raises(ApiError) as late:
        await two.write({"b": 4}, first)
    assert late.value.stale
    assert await two.write({"b": 4}, second) == (await one.read()).version
    assert (await one.read()).values == {"a": 3, "b": 4}
    await cluster.delete(ADDRESS)
    with pytest.raises(ApiError) as deleted:
        await two.write({"b": 5}, second)
    assert deleted.value.absent


async def test_configmap_store_leaves_a_damaged_entry_as_it_is(cluster):
    await ConfigMapStore(cluster, "sweeps", ADDRESS.name).write({"a": "1", "b": "not a number"})
    await numbers(cluster).write({"a": 5})
    found = await numbers(cluster).read()
    assert (found.values, found.texts["b"], list(found.damaged)) == ({"a": 5}, "not a number", ["b"])
    assert "Invalid JSON" in str(found.damaged["b"])


async def test_configmap_store_that_another_process_creates_first_is_written_after_it(cluster):
    class Racing(DirectCluster):
        async def create(self, manifest):
            await numbers(cluster).write({"theirs": 1})
            return await super().create(manifest)

    await numbers(Racing(cluster.store)).write({"ours": 2})
    assert (await numbers(cluster).read()).values == {"theirs": 1, "ours": 2}


async def test_configmap_store_that_is_full_says_how_to_fix_it(cluster):
    texts = ConfigMapStore(cluster, "sweeps", ADDRESS.name)
    await texts.write({"a": "x" * 1_000_000})
    with pytest.raises(ApiError, match=r"is full: .* 1048576 bytes\. \*Fix:\* Delete") as full:
        await texts.write({"b": "x" * 50_000})
    assert full.value.permanent
    assert list((await texts.read()).values) == ["a"]
