"""`/gpus` views of pods and nodes, over all clusters."""

from dataclasses import replace

from bot.measure.gpus.models import NodeUse, Snapshot
from bot.measure.sources.remote_usage import snapshots_elsewhere
from bot.platform.config.clusters import TrialCluster
from bot.platform.slack.mrkdwn import local_time
from bot.watch.home.gpu_query_job import answer_of_all
from tests.bot.factories import CONFIG, NOW, OWNER
from tests.bot.watch.idle.test_detector import BUSY, QUIET, a_pod
from tests.scenarios.test_warnings_elsewhere import TwoClusters

NODE = NodeUse(node="n1", physical=4, allocatable=4, allocated=1)
HOME = Snapshot(at=NOW, nodes=(NODE,), pods=(a_pod(BUSY, owner="U2", team="vision"),))
WEST = Snapshot(
    at=NOW,
    nodes=(replace(NODE, node="west/n1"),),
    pods=(a_pod(QUIET, node="west/n1", pod="x", trial="lr-x", owner=OWNER, team="vision"),),
)


def shown(view, **others):
    return "\n".join(answer_of_all(view, HOME, others, OWNER)).splitlines()


def test_nodes_of_all_clusters_are_listed():
    assert shown("nodes", west=WEST) == [
        "• `n1`: 3 of 4 free",
        "• `west/n1`: 3 of 4 free",
        f"Measured {local_time(NOW)}.",
        "*By cluster*",
        "• `main`: 3 of 4 GPUs free, 1 GPU allocated, 0 idle for 30 min",
        "• `west`: 3 of 4 GPUs free, 1 GPU allocated, 1 idle for 30 min",
    ]


def test_teams_are_summed_over_clusters():
    assert shown("team", west=WEST)[0].startswith("• *vision*: 2 GPUs allocated, 1 idle for 30 min")


def test_own_pods_of_all_clusters_are_listed():
    first, pod, *_, main, west = shown("mine", west=WEST)
    assert (first, "on `west/n1`" in pod) == ("*You have 1 GPU.*", True)
    assert main == "• `main`: 0 GPUs allocated, 0 idle for 30 min"
    assert west == "• `west`: 1 GPU allocated, 1 idle for 30 min"


def test_cluster_without_data_is_named():
    assert shown("now", west=None)[-1] == "• `west`: no GPU data"


async def test_snapshots_elsewhere_are_those_that_the_workers_stored(redis):
    two = TwoClusters(redis)
    await two.sample(1)
    clusters = tuple(TrialCluster(name=name, kubeconfig=f"/{name}") for name in ("west", "east"))
    found = await snapshots_elsewhere(replace(CONFIG, clusters=clusters), redis, lambda: two.now)
    assert found["east"] is None
    assert [node.node for node in found["west"].nodes] == ["west/w1"]
