"""Which cluster a new sweep gets, and the reason."""

import asyncio
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.platform.clusters.connections import RemoteCluster
from bot.platform.config.clusters import TrialCluster
from bot.platform.config.policy import parse_config
from bot.sweep.launch.cluster_choice import Candidate, choose, placed_unmeasured
from bot.sweep.launch.clusters import check_capacity, free_gpus, highest_price, with_cluster
from bot.sweep.launch.command_line import parse
from bot.sweep.launch.plan import plan
from k8s.api.errors import ApiError, ClusterUnreachableError
from k8s.katib.pod_shape import PodShape
from k8s.nodes.gpu_pods import read_gpu_pod
from k8s.nodes.scheduling import OpenNode, read_open_node
from k8s.objects import CLASS_PREFIX
from k8s.trial_kinds import PYTORCH_JOB
from local import training_operator
from tests.bot.factories import ELASTIC as LLM
from tests.bot.factories import NOW, ORDER, REQUEST, SETTINGS, SPACE
from tests.scenarios.device_cluster import publish
from tests.scenarios.sweep_in_memory import Clock
from tests.scenarios.two_clusters import CLUSTERS, TwoClusters

MAIN, WEST, EAST = (TrialCluster(name=name) for name in ("main", "west", "east"))
GPU = "nvidia.com/gpu"
TWO = "repositories: {digits: {url: https://git.example/digits.git}}\nteams: {vision: {members: [UOWNER]}}\n"


def candidate(cluster, free=None, waiting=0, refusal="", price=None):
    return Candidate(cluster=cluster, free=free, waiting=waiting, refusal=refusal, price=price)


def node(name, gpus, **spec):
    size = {"cpu": "64", "memory": "512Gi", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {
            "capacity": size,
            "allocatable": size,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name, gpus, on=""):
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "sweeps"},
        "spec": {"containers": [container]} | ({"nodeName": on} if on else {}),
    }


def gpu_pod(name, gpus, on=""):
    return read_gpu_pod(pod(name, gpus, on) | {"status": {"phase": "Pending"}})


@pytest.mark.parametrize(
    ("candidates", "peak", "chosen", "reason"),
    [
        (
            [candidate(MAIN, 1), candidate(WEST, 16)],
            16,
            WEST,
            "16 GPUs free, 0 waiting (main: 1 GPU free, 0 waiting)",
        ),
        (
            [candidate(MAIN, 8), candidate(WEST, 16)],
            8,
            MAIN,
            "8 GPUs free, 0 waiting (west: 16 GPUs free, 0 waiting)",
        ),
        (
            [candidate(MAIN, 0, 7), candidate(WEST, 0, 2)],
            8,
            WEST,
            "0 GPUs free, 2 waiting (main: 0 GPUs free, 7 waiting)",
        ),
        (
            [candidate(MAIN, 16, refusal="no machine fits profile h100"), candidate(WEST)],
            8,
            WEST,
            "free GPUs unknown, 0 waiting (main: no machine fits profile h100)",
        ),
    ],
)
def test_choose_prefers_free_gpus_then_short_queues_then_the_order(candidates, peak, chosen, reason):
    assert choose(candidates, peak) == (chosen, reason)


@pytest.mark.parametrize(
    ("main", "west", "chosen"),
    [
        (candidate(MAIN, 8, price=4), candidate(WEST, 8, 3, price=2.5), WEST),  # although more waits there
        (candidate(MAIN, 8, price=0), candidate(WEST, 8, price=2.5), MAIN),
        (candidate(MAIN, 8, price=2.5), candidate(WEST, 99, price=2.5), MAIN),
        (candidate(MAIN, 8, price=4), candidate(WEST, 7, price=2.5), MAIN),  # west can't start all now
        (candidate(MAIN, 0, 1, price=4), candidate(WEST, 0, 2, price=2.5), MAIN),  # starts first
        (candidate(MAIN, 8), candidate(WEST, 8, price=2.5), MAIN),  # nothing says that west is cheaper
        (candidate(MAIN, 7), candidate(EAST, 8, price=2.5), EAST),
    ],
)
def test_choose_takes_the_cheapest_of_those_that_can_start_all_trials_now(main, west, chosen):
    assert choose([main, west], 8, "$")[0] == chosen


def test_choose_says_prices_and_reasons_and_prefers_one_free_gpu_to_an_unknown_number():
    _, reason = choose([candidate(MAIN, 8, price=4), candidate(WEST, 8, 3, price=2.5)], 8, "$")
    assert reason == (
        "8 GPUs free, $2.50 per GPU-hour, 3 waiting (main: 8 GPUs free, $4.00 per GPU-hour, 0 waiting)"
    )
    assert choose([candidate(WEST), candidate(EAST, 1)], 8)[0] == EAST


def test_choose_ignores_prices_where_no_gpu_is_free():
    assert choose([candidate(MAIN, 0, 1, price=4), candidate(WEST, 0, 2, price=2)], 1, "$")[0] == MAIN
    assert choose([candidate(WEST), candidate(EAST, 0)], 8)[0] == WEST
    with pytest.raises(UserError) as error:
        choose([candidate(MAIN, refusal="too small"), candidate(WEST, refusal="doesn't answer")], 8)
    assert str(error.value) == (
        "No cluster can run this sweep. main: too small and west: doesn't answer. *Fix:* Change the "
        "request, or ask an admin."
    )


PULLING = (
    TrialCluster(name="main", registries=("elsewhere:5000",)),
    TrialCluster(name="west", registries=("registry:5000", "nvcr.io"), namespace="gpu-lab"),
)


@pytest.mark.parametrize(
    ("image", "registry", "cluster"),
    [
        ("", "registry:5000", "west"),
        ("", "elsewhere:5000", "main"),
        ("nvcr.io/nvidia/pytorch:1", "elsewhere:5000", "west"),  # the space's own image
    ],
)
def test_unmeasured_sweep_is_placed_where_its_image_can_be_pulled(image, registry, cluster):
    made = placed_unmeasured(replace(ORDER, space=replace(SPACE, image=image)), PULLING, registry)
    assert (made.cluster, made.namespace) == (cluster, "gpu-lab" if cluster == "west" else ORDER.namespace)


def test_unmeasured_sweep_that_names_a_cluster_is_placed_there_or_refused():
    assert placed_unmeasured(order(cluster="west"), PULLING, "registry:5000").cluster == "west"
    with pytest.raises(UserError, match="cluster=main: its nodes can't pull from registry:5000"):
        placed_unmeasured(order(cluster="main"), PULLING, "registry:5000")
    assert placed_unmeasured(order(), (), "registry:5000") == order()


def test_free_gpus_counts_whole_trials_on_nodes_that_admit_them():
    nodes = [
        node("a", 8),
        node("b", 8, unschedulable=True),
        node("c", 4, taints=[{"key": "x", "effect": "NoSchedule"}]),
    ]
    opened = filter(None, map(read_open_node, nodes))
    assert free_gpus(opened, [gpu_pod("p", 3, on="a"), gpu_pod("w", 8)], PodShape(), 2) == 4
    nodes = [node("a", "1k"), node("b", 0), node("c", 4)]
    pods = [gpu_pod("huge", "1k"), gpu_pod("left", 8, on="b")]
    assert free_gpus(filter(None, map(read_open_node, nodes)), pods, PodShape(), 1) == 1004


@pytest.fixture
async def two(redis):
    simulation = TwoClusters(redis, Clock(None))
    add(simulation.home, node("home-1", 2))
    for number in range(2):
        add(simulation.kubernetes, node(f"west-{number}", 8))
    return simulation


def add(store, machine):
    store.create(machine)
    store.patch("Node", "", machine["metadata"]["name"], {"status": machine["status"]}, subresource="status")


def order(**request):
    return replace(
        ORDER, request=replace(REQUEST, **request), namespace="sweeps", space=replace(SPACE, parallel=4)
    )


async def test_with_cluster_takes_the_one_with_the_most_free_gpus(two):
    found = await with_cluster(order(gpus=2), two.clients)
    assert (found.cluster, found.cluster_reason) == (
        "west",
        "16 GPUs free, 0 waiting (main: 2 GPUs free, 0 waiting)",
    )
    made = plan(found, SETTINGS)
    assert (made.cluster, made.cluster_reason) == (found.cluster, found.cluster_reason)
    assert '\\"sweepbot.cluster\\": \\"west\\"' in str(made.experiment).replace('"', '\\"')


@pytest.mark.parametrize(
    ("gpus", "chosen", "free"),
    [
        (2, "main", "6 GPUs free, $1.00 per GPU-hour, 0 waiting"),
        (8, "west", "16 GPUs free, $9.00 per GPU-hour, 0 waiting (main: 0 GPUs free, 0 waiting)"),
    ],
)
async def test_with_cluster_compares_the_prices_of_the_gpus_that_the_trials_can_get(two, gpus, chosen, free):
    """The main cluster's H100s are reserved for others, and its L4s have too few GPUs for eight at once."""
    text = f"{TWO}clusters: {{main: {{}}, west: {{kubeconfig: /west}}}}\nprices: {{NVIDIA L4: 1, .*: 9}}"
    two.clients.config = parse_config(text, "c.yaml")
    taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    for number, (model, taints) in enumerate({"NVIDIA-L4": [], "NVIDIA-H100-80GB-HBM3": [taint]}.items()):
        machine = node(f"new-{number}", 6, taints=taints)
        machine["metadata"]["labels"] = {"nvidia.com/gpu.product": model}
        add(two.home, machine)
    two.home.delete("Node", "", "home-1")
    found = await with_cluster(replace(order(gpus=gpus), space=replace(SPACE, parallel=2)), two.clients)
    assert (found.cluster, found.cluster_reason[: len(free)]) == (chosen, free)


@pytest.mark.parametrize("product", ["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"])
def test_highest_price_of_slices_is_their_share_of_the_cards_however_nodes_name_them(product):
    config = parse_config(f"{TWO}prices: {{NVIDIA A100: 3, NVIDIA A100-SXM4-40GB: 7}}", "c.yaml")
    shaped = replace(order(gpus=1), shape=PodShape(resource="nvidia.com/mig-1g.5gb"))
    sizes = {"nvidia.com/mig-1g.5gb": 7000}
    made = OpenNode(name="n", sizes=sizes, labels={"nvidia.com/gpu.product": product})
    assert highest_price([made], shaped, config) == pytest.approx(1.0)


async def test_claims_are_read_with_the_pods_that_have_them(two):
    """The nodes are from before: a pod whose claim nothing is known of would leave its GPUs free."""
    two.kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    publish(two.kubernetes, gpus=8)
    claiming = replace(order(gpus=2), shape=PodShape(resource=f"{CLASS_PREFIX}gpu.nvidia.com"))
    assert (await with_cluster(claiming, two.clients)).cluster_reason.startswith("16 GPUs free")
    [first, _] = two.kubernetes.list("Node")
    name, where = first["metadata"]["name"], {"name": "claim", "namespace": "sweeps"}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 8}}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": where}
    claim = two.kubernetes.create(head | {"spec": {"devices": {"requests": [request]}}})
    of_node = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": name}
    results = [of_node | {"device": f"gpu-{n}"} for n in range(8)]
    two.kubernetes.set_status(claim, {"allocation": {"devices": {"results": results}}})
    user = pod("user", 0, on=name)
    user["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "claim"}]
    two.kubernetes.set_status(two.kubernetes.create(user), {"phase": "Running"})
    two.clients.clusters.reads.forget((CLUSTERS[1], "Pod"))
    assert (await with_cluster(claiming, two.clients)).cluster_reason.startswith("8 GPUs free")


@pytest.mark.parametrize(("nodes", "cluster"), [(1, "main"), (2, "west")])
async def test_with_cluster_prefers_room_for_all_nodes_of_all_parallel_trials(two, nodes, cluster):
    add(two.home, node("home-2", 8))
    found = await with_cluster(order(gpus=2, nodes=nodes), two.clients)
    assert found.cluster == cluster, "four trials at once need eight GPUs on each of their nodes"


async def test_with_cluster_leaves_out_those_whose_machines_dont_fit_the_profile(two):
    shaped = replace(order(gpus=2), profile="h100", shape=PodShape(nodes={"gpu": "h100"}))
    with pytest.raises(UserError, match="main: no machine fits profile h100 and west: no machine"):
        await with_cluster(shaped, two.clients)
    two.home.patch("Node", "", "home-1", {"metadata": {"labels": {"gpu": "h100"}}})
    two.clients.clusters.reads.forget((CLUSTERS[0], "Node"))
    assert (await with_cluster(shaped, two.clients)).cluster == "main"


async def test_with_cluster_excludes_one_without_the_training_operator(two):
    training_operator.install(two.home)
    shape = PodShape(multi_node=PYTORCH_JOB)
    found = await with_cluster(replace(order(gpus=2, nodes=2), shape=shape), two.clients)
    assert (found.cluster, found.cluster_reason) == (
        "main",
        "2 GPUs free, 0 waiting (west: Kubeflow's Training Operator isn't installed in the cluster)",
    )
    assert (await with_cluster(replace(order(gpus=2), shape=shape), two.clients)).cluster == "west"


async def test_thousand_sweeps_list_each_cluster_once(two, monkeypatch):
    listed, original = Counter(), two.cluster.list

    async def counted(kind, *args, **kwargs):
        listed[kind] += 1
        await asyncio.sleep(0)
        return await original(kind, *args, **kwargs)

    monkeypatch.setattr(two.cluster, "list", counted)
    found = await asyncio.gather(*(with_cluster(order(gpus=2), two.clients) for _ in range(500)))
    assert {each.cluster for each in found} == {"west"}
    assert listed == {"Node": 1, "ResourceSlice": 2, "Pod": 1}
    for _ in range(500):
        await with_cluster(order(gpus=2), two.clients)
    assert listed == {"Node": 1, "ResourceSlice": 2, "Pod": 1}


async def test_thousand_sweeps_with_a_profile_list_the_nodes_once(two, monkeypatch):
    listed, original = Counter(), two.cluster.list

    async def counted(kind, *args, **kwargs):
        listed[kind] += 1
        return await original(kind, *args, **kwargs)

    monkeypatch.setattr(two.cluster, "list", counted)
    made = replace(plan(order(), SETTINGS), profile="any")
    for _ in range(1000):
        await check_capacity(order(), made, two.clients)
    assert listed == {"Node": 1, "ResourceSlice": 1}


async def test_cluster_that_fails_after_it_was_read_is_not_chosen_from_memory(two, monkeypatch):
    assert (await with_cluster(order(gpus=2), two.clients)).cluster == "west"
    two.west.away = True
    monkeypatch.setattr(RemoteCluster, "failure", ClusterUnreachableError("west", "no route", seen=NOW))
    found = await with_cluster(order(gpus=2), two.clients)
    assert (found.cluster, "west: hasn't answered since" in found.cluster_reason) == ("main", True)


async def test_elastic_replicas_give_way_so_their_gpus_are_free_in_the_home_cluster_only(two):
    two.clients.config = replace(two.clients.config, elastic=(LLM,))
    for store, machine in ((two.home, "home-1"), (two.kubernetes, "west-0")):
        if not store.get("Namespace", "", "serving"):
            store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "serving"}})
        replica = pod("llm-6d5f9c7b8-x2x4z", 2, on=machine)
        store.create(replica | {"metadata": {"name": "llm-6d5f9c7b8-x2x4z", "namespace": "serving"}})
    found = await with_cluster(order(gpus=2), two.clients)
    assert found.cluster_reason == "14 GPUs free, 0 waiting (main: 2 GPUs free, 0 waiting)"


async def test_with_cluster_unreachable_uses_another_and_refuses_it_by_name(two):
    two.west.away = True
    found = await with_cluster(order(), two.clients)
    assert (found.cluster, found.cluster_reason) == (
        "main",
        f"2 GPUs free, 0 waiting (west: hasn't answered since {NOW:%H:%M} UTC)",
    )
    with pytest.raises(UserError) as error:
        await with_cluster(order(cluster="west"), two.clients)
    assert str(error.value) == (
        f"cluster=west: hasn't answered since {NOW:%H:%M} UTC. *Fix:* Use another cluster, or omit cluster=."
    )


async def test_with_cluster_named_has_no_reason_and_its_own_namespace(two):
    west = replace(CLUSTERS[1], namespace="gpu-lab")
    two.clients.config = replace(two.clients.config, clusters=(CLUSTERS[0], west))
    found = await with_cluster(order(cluster="west"), two.clients)
    assert (found.cluster, found.cluster_reason, found.namespace) == ("west", "", "gpu-lab")


async def test_with_cluster_counts_what_waits_in_the_queue_of_each_clusters_namespace(two, monkeypatch):
    asked = set()

    async def listed(kind, namespace, there):
        asked.add((kind, namespace))
        names = {"research": 3, "urgent": 5}
        return [{"metadata": {"name": n}, "status": {"pendingWorkloads": w}} for n, w in names.items()]

    monkeypatch.setattr("bot.sweep.launch.clusters.list_if_allowed", listed)
    west = replace(CLUSTERS[1], namespace="gpu-lab")
    two.clients.config = replace(two.clients.config, clusters=(CLUSTERS[0], west))
    queued = replace(order(gpus=2), queueing=replace(ORDER.queueing, queue="research"))
    found = await with_cluster(queued, two.clients)
    assert asked == {("LocalQueue", "sweeps"), ("LocalQueue", "gpu-lab")}
    assert found.cluster_reason == "16 GPUs free, 3 waiting (main: 2 GPUs free, 3 waiting)"


@pytest.mark.parametrize(
    ("west", "reason"),
    [
        ("registries: [elsewhere:5000]", "its nodes can't pull from registry:5000"),
        ("teams: [vision]", "your team can't use it"),
    ],
)
async def test_with_cluster_leaves_out_what_the_configuration_excludes(two, west, reason):
    text = f"{TWO}clusters: {{main: {{}}, west: {{kubeconfig: /west, {west}}}}}"
    two.clients.config = parse_config(text, "c.yaml")
    stranger = replace(order(), owner="USTRANGER")
    found = await with_cluster(stranger, two.clients)
    assert (found.cluster, reason in found.cluster_reason) == ("main", True)


@pytest.mark.parametrize(
    ("error", "west"),
    [
        (ApiError(403, "Forbidden", "pods is forbidden"), "west: free GPUs unknown, 0 waiting"),
        (ApiError(500, "", "etcdserver: no leader"), "west: its API server returns errors"),
    ],
)
async def test_with_cluster_without_permission_to_list_pods_knows_no_free_gpus(two, monkeypatch, error, west):
    async def refused(*_, **__):
        raise error

    monkeypatch.setattr(two.cluster, "list", refused)
    with monkeypatch.context() as patch:
        patch.setattr(two.west, "list", refused)
        first = await with_cluster(order(), two.clients)
        assert (first.cluster, west in first.cluster_reason) == ("main", True)
    found = await with_cluster(order(cluster="main"), two.clients)
    assert found.cluster == "main"
    best = await with_cluster(order(), two.clients)
    assert "main: free GPUs unknown, 0 waiting" in f"{best.cluster}: {best.cluster_reason}"
    made = plan(order(), SETTINGS)
    with nullcontext() if error.status == 403 else pytest.raises(ApiError):
        await check_capacity(order(), made, two.clients)


async def test_with_cluster_without_clusters_reads_nothing(two):
    two.clients.config = replace(two.clients.config, clusters=())
    calls = two.clock.calls
    assert await with_cluster(order(), two.clients) == order()
    assert two.clock.calls == calls


@pytest.mark.parametrize(
    ("typed", "reported"),
    [
        ("cluster=wst", 'cluster= must be a configured cluster; got "wst". Did you mean west?'),
        ("cluster=x", 'cluster= must be a configured cluster; got "x". Available: main and west.'),
    ],
)
def test_parse_unknown_cluster_lists_the_known_ones(typed, reported):
    config = parse_config(f"{TWO}clusters: {{main: {{}}, west: {{kubeconfig: /west}}}}", "c.yaml")
    assert parse("branch=main space=lr cluster=west", config).cluster == "west"
    with pytest.raises(UserError) as error:
        parse(f"branch=main space=lr {typed}", config)
    assert str(error.value) == reported


def test_parse_cluster_without_clusters_is_refused():
    with pytest.raises(UserError, match="no cluster is configured"):
        parse("branch=main space=lr cluster=west", parse_config(TWO, "c.yaml"))


@pytest.mark.parametrize(
    ("clusters", "reported"),
    [
        ("{west: {}}", "missing key: kubeconfig"),
        ("{main: {kubeconfig: /x}}", "main is the cluster that Sweepbot runs in; remove kubeconfig"),
        ("{West: {kubeconfig: /x}}", "name must have only lowercase letters"),
        ("{west: {kubeconfig: x}}", "must be an absolute path"),
        ("{west: {kubeconfig: /x, teams: [sound]}}", 'must be a name under `teams`; got "sound"'),
        ("{west: {kubeconfig: /x, registries: [a/b]}}", "must be the host of a registry"),
        ("{west: {kubeconfig: /x, namespace: A_b}}", "must be a namespace name"),
    ],
)
def test_parse_config_invalid_clusters_names_the_rule(clusters, reported):
    with pytest.raises(UserError) as error:
        parse_config(f"{TWO}clusters: {clusters}", "c.yaml")
    assert reported in str(error.value)
