"""What the measurement of free GPUs leaves out."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.measure.capacity.measure import CapacityMeasurer
from bot.platform.config.teams import Team
from bot.platform.storage.free_capacity import CapacityStore
from k8s.objects import SWEEP_LABEL, TEAM_LABEL
from k8s.trial_kinds import JOB_LABEL
from tests.bot.factories import CONFIG, NOW
from tests.bot.factories import ELASTIC as LLM
from tests.bot.measure.capacity.test_nodes import GPU, LONG_AGO, a_node, a_pod, a_request, listing
from tests.bot.measure.capacity.test_quotas import a_local, a_queue

FULL = a_pod("mine-1", 8, "n1", sweep="mine"), a_pod("other", 2)


class Nodes:
    nodes = (a_node("n1", 8),)

    async def list(self, kind, namespace, *, only=None):
        return self.nodes if kind == "Node" else ()


@pytest.mark.parametrize("node", ["n1", ""])
async def test_elastic_replicas_neither_hold_gpus_nor_wait_for_them(redis, node):
    store, config = CapacityStore(redis), replace(CONFIG, elastic=(LLM,))
    measurer = CapacityMeasurer(Nodes(), store, "sweeps", lambda: config, lambda: NOW)
    await store.register(a_request())
    pod = replace(a_pod("llm-7d9f8c6b5-x2x4z", 8, node), namespace=LLM.namespace)
    await measurer.measure(listing([pod]))
    assert [(free.trials, free.to_yield) for free in (await store.measured()).values()] == [(8, 0)]
    await measurer.measure(listing([replace(pod, name="notebook-0")]))
    assert [free.trials for free in (await store.measured()).values()] == [0]


async def test_free_gpus_of_another_vendor_are_unknown_without_a_queue(redis):
    store = CapacityStore(redis)
    await store.register(replace(a_request(), resource="amd.com/gpu"))
    await CapacityMeasurer(Nodes(), store, "sweeps", lambda: CONFIG, lambda: NOW).measure(listing([]))
    assert [free.trials for free in (await store.measured()).values()] == [None]


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
        "status": {
            "conditions": [{"type": "Admitted", "status": "True"}],
            "admission": {"podSetAssignments": [{"name": "main", "flavors": {GPU: "a100"}}]},
        },
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
    await measurer.measure(listing(pods))
    assert [free.trials for free in (await store.measured()).values()] == [trials]


class Waiting(Nodes):
    """A queue in which another team's Workload with four GPUs has waited for long."""

    def __init__(self, used):
        self.used = used

    async def list(self, kind, namespace, *, only=None):
        waits = a_workload("other")
        waits["metadata"] |= {"namespace": namespace, "creationTimestamp": LONG_AGO}
        waits["spec"]["podSets"][0]["count"] = 4
        del waits["status"]
        found = {"ClusterQueue": [a_queue(used=self.used)], "LocalQueue": [a_local(namespace=namespace)]}
        return {"Workload": [waits], **found}.get(kind) or await super().list(kind, namespace)


@pytest.mark.parametrize(
    ("used", "pods", "waiting", "to_yield", "who"),
    [
        (8, (), 0, 2, "namespace sweeps"),  # the Workload lacks quota
        (0, (*FULL, a_pod("mine-2", 2, sweep="mine")), 1, 1, "namespace vision"),
        (8, FULL, 0, 2, "namespace sweeps"),
        (0, (), 0, 0, ""),
    ],
)
async def test_sweep_yields_to_the_larger_of_the_waits_for_quota_and_nodes(
    redis, used, pods, waiting, to_yield, who
):
    store = CapacityStore(redis)
    measurer = CapacityMeasurer(Waiting(used), store, "sweeps", lambda: CONFIG, lambda: NOW)
    await store.register(replace(a_request(gpus=2), queue="research"))
    await measurer.measure(listing(pods))
    [free] = (await store.measured()).values()
    assert (free.trials, free.waiting, free.to_yield, free.who) == (0, waiting, to_yield, who)


@pytest.mark.parametrize(("later", "trials"), [("a100", 0), ("h100", 1)])
async def test_nodes_are_set_aside_for_the_sweep_that_has_waited_longer(redis, later, trials):
    store = CapacityStore(redis)
    cluster = Nodes()
    cluster.nodes = [a_node("n1", 8, gpu="a100"), a_node("n2", 8, gpu="a100"), a_node("n3", 8, gpu="h100")]
    measurer = CapacityMeasurer(cluster, store, "sweeps", lambda: CONFIG, lambda: NOW)
    first = replace(
        a_request(gpus=8, pods=3, nodeSelector={"gpu": "a100"}), sweep="z", expects=3, since=NOW
    )  # lacks a third node
    second = replace(a_request(gpus=8, nodeSelector={"gpu": later}), since=NOW + timedelta(seconds=1))
    await store.register(second)
    await store.register(first)
    await measurer.measure(listing([]))
    found = await store.measured()
    assert (found["z"].trials, found["mine"].trials) == (0, trials)
    assert (found["z"].beside, found["mine"].beside) == ((), ("z",))


@pytest.mark.parametrize(
    ("labels", "teams", "who"),
    [
        ({TEAM_LABEL: "nlp", SWEEP_LABEL: "other"}, (), "team nlp"),
        ({SWEEP_LABEL: "other"}, (Team(name="speech", namespaces=("vision",)),), "team speech"),
        ({SWEEP_LABEL: "other"}, (), "sweep other"),
        ({}, (), "namespace vision"),
    ],
)
async def test_who_waits_is_a_team_or_a_sweep_or_a_namespace(redis, labels, teams, who):
    store, config = CapacityStore(redis), replace(CONFIG, teams=teams)
    measurer = CapacityMeasurer(Nodes(), store, "sweeps", lambda: config, lambda: NOW)
    await store.register(a_request())
    waits = replace(a_pod("other", 2), labels=labels)
    await measurer.measure(listing([a_pod("mine-1", 8, "n1", sweep="mine"), waits]))
    assert [free.who for free in (await store.measured()).values()] == [who]


@pytest.mark.parametrize(("nodes", "trials"), [(2, 0), (3, 0), (4, 8)])
async def test_auto_sweep_does_not_grow_into_nodes_that_another_sweep_waits_for(redis, nodes, trials):
    store, cluster = CapacityStore(redis), Nodes()
    cluster.nodes = [a_node(f"n{number}", 8) for number in range(nodes)]
    await store.register(a_request(gpus=1))
    await store.register(replace(a_request(gpus=8, pods=3), sweep="z", expects=3, since=NOW, auto=False))
    await CapacityMeasurer(cluster, store, "sweeps", lambda: CONFIG, lambda: NOW).measure(listing([]))
    assert (await store.measured())["mine"].trials == trials
