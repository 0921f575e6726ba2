"""What the measurement of free GPUs leaves out."""

from dataclasses import replace

import pytest

from bot.capacity.measure import CapacityMeasurer
from bot.storage.free_capacity import CapacityStore
from k8s.trial_kinds import JOB_LABEL
from tests.bot.capacity.test_nodes import GPU, a_node, a_pod, a_request
from tests.bot.capacity.test_quotas import a_local, a_queue
from tests.bot.elastic.factories import LLM
from tests.bot.factories import CONFIG, NOW


class Nodes:
    async def list(self, kind, namespace, *, only=None):
        return [a_node("n1", 8)]


@pytest.mark.parametrize("node", ["n1", ""])
async def test_elastic_replicas_neither_hold_gpus_nor_wait_for_them(redis, node):
    store, config = CapacityStore(redis), replace(CONFIG, elastic=(LLM,))
    measurer = CapacityMeasurer(Nodes(), store, "sweeps", lambda: config, lambda: NOW)
    await store.register(a_request())
    pod = replace(a_pod("llm-7d9f8c6b5-x2x4z", 8, node), namespace=LLM.namespace)
    await measurer.measure([pod])
    assert [(free.trials, free.to_yield) for free in (await store.measured()).values()] == [(8, 0)]
    await measurer.measure([replace(pod, name="notebook-0")])
    assert [free.trials for free in (await store.measured()).values()] == [0]


class Queued(Nodes):
    """A queue `research` in the namespace `away`, with a quota of eight GPUs, all of them reserved."""

    async def list(self, kind, namespace, *, only=None):
        if kind == "Node":
            return await super().list(kind, namespace)
        if kind == "ClusterQueue":
            return [a_queue(used=8)]
        if namespace != "away":
            return []
        if kind == "LocalQueue":
            return [a_local(namespace="away")]
        return [a_workload(f"sweepbot-reserved-vision-1a2b3-{number}") for number in range(8)]


def a_workload(job):
    container = {"name": "placeholder", "resources": {"requests": {GPU: "1"}}}
    pods = {"count": 1, "template": {"spec": {"containers": [container]}}}
    owner = {"kind": "Job", "name": job}
    return {
        "metadata": {"name": f"job-{job}", "namespace": "away", "ownerReferences": [owner]},
        "spec": {"queueName": "research", "podSets": [pods]},
        "status": {"conditions": [{"type": "Admitted", "status": "True"}]},
    }


@pytest.mark.parametrize(("queue", "trials"), [("research", 4), ("", 0)])
async def test_gpus_reserved_for_the_queue_are_free(redis, queue, trials):
    store = CapacityStore(redis)
    measurer = CapacityMeasurer(Queued(), store, "sweeps", lambda: CONFIG, lambda: NOW)
    await store.register(replace(a_request(gpus=2), namespace="away", queue=queue))
    jobs = [f"sweepbot-reserved-vision-1a2b3-{number}" for number in range(8)]
    pods = [
        replace(a_pod(f"{job}-x2x4z", 1, "n1"), namespace="away", labels={JOB_LABEL: job}) for job in jobs
    ]
    await measurer.measure(pods)
    assert [free.trials for free in (await store.measured()).values()] == [trials]
