"""Idle GPUs in another cluster: measured there, warned about in the sweep's thread; away is not idle."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from bot.measure.gpus.models import ITEM
from bot.measure.sources.remote_usage import RemoteUsage
from bot.platform.clusters.connections import Clusters
from bot.platform.config.clusters import TrialCluster
from bot.watch.idle.alert_commands import GONE
from bot.watch.idle.alerts import cluster_of
from bot.watch.idle.monitor import IdleMonitors
from bot.watch.idle.store import AlertStore
from k8s.api.errors import ClusterUnreachableError
from tests.bot.factories import NOW, OWNER, a_sweep
from tests.bot.watch.idle.test_detector import BUSY, QUIET, a_pod
from tests.scenarios.simulated_monitor import TRIAL, SimulatedMonitor

STEP = timedelta(seconds=30)
WEST_TRIAL = "lr-calm-heron-x"
IN_WEST = f"idle/west:sweeps/{WEST_TRIAL}"
GPU = {"nvidia.com/gpu": "1"}
LABELS = {"sweepbot/sweep": "lr-calm-heron", "sweepbot/owner": OWNER, "katib.kubeflow.org/trial": WEST_TRIAL}
METRICS = 'DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-1",modelName="A100",namespace="sweeps",pod="{pod}"}} 0\n'
XID = 'DCGM_FI_DEV_XID_ERRORS{{UUID="GPU-1",modelName="A100",namespace="sweeps",pod="{pod}"}} 79\n'


def node_pod(namespace, name, labels, limits):
    running = [{"name": "main", "state": {"running": {"startedAt": "2026-11-21T11:00:00Z"}}}]
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"nodeName": "w1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running", "containerStatuses": running},
    }


class West:
    """One node with an exporter, an idle trial of a sweep, and an idle pod of other people."""

    away = False

    def __init__(self) -> None:
        self.trials = [node_pod("sweeps", f"{WEST_TRIAL}-1", LABELS, GPU)]

    async def list(self, kind, _namespace="", *, only=bool, **_):
        if self.away:
            raise ClusterUnreachableError("west", "no route to host", seen=NOW)
        if kind == "Node":
            size = {"allocatable": GPU, "capacity": GPU, "conditions": [{"type": "Ready", "status": "True"}]}
            return [{"metadata": {"name": "w1"}, "spec": {}, "status": size}]
        exporter = node_pod("gpu-operator", "dcgm-1", {"app": "nvidia-dcgm-exporter"}, {})
        pods = [*self.trials, node_pod("vision", "notebook", {}, GPU), exporter]
        return [pod for pod in pods if only(pod)] if kind == "Pod" else []

    async def proxy(self, *_):
        names = [pod["metadata"]["name"] for pod in self.trials]
        theirs = METRICS.format(pod="notebook").replace("sweeps", "vision").replace("GPU-1", "GPU-2")
        return theirs + "".join(METRICS.format(pod=name) + XID.format(pod=name) for name in names)


class TwoClusters(SimulatedMonitor):
    """A sweep at home, whose GPUs the source of the main cluster has, and one in west."""

    def __init__(self, redis) -> None:
        super().__init__(redis, a_pod(BUSY))
        clients = self.watching.clients
        config = replace(clients.config, clusters=(TrialCluster(name="west", kubeconfig="/west"),))
        self.west, self.sampled = West(), NOW
        clusters = Clusters(lambda _: self.west)
        self.clients = replace(clients, config=config, clusters=clusters)
        self.watching = IdleMonitors(self.clients, redis, self.source)
        usage = RemoteUsage(redis, clusters, clients.settings, lambda: config, lambda: self.now)
        self.collector = usage.collector(clusters.get("west", config))

    async def sample(self, minutes) -> None:
        """Let time pass, in which the worker samples west if it answers. Then check the GPUs."""
        end = self.sampled + timedelta(minutes=minutes)
        while self.sampled < end:
            self.sampled += STEP
            at = self.sampled
            await self.collector._attempt(lambda at=at: self.collector.collect_once(at))
        await self.run((end - NOW) / timedelta(minutes=1))

    def of_west(self) -> list[str]:
        posted = self.slack.posted.values()
        return [message.blocks[0]["text"]["text"] for _, thread, message in posted if thread == "2.2"]


@pytest.fixture
async def simulation(redis):
    simulation = TwoClusters(redis)
    await simulation.sweep()
    there = a_sweep(Phase.RUNNING, id="lr-calm-heron", cluster="west", thread="2.2", request_id="trigger-2")
    await simulation.store.create(there, [there.id], there.request_id)
    return simulation


async def test_idle_trial_elsewhere_is_reported_in_its_thread(simulation):
    await simulation.sample(31)
    [(channel, thread, warning)] = [each for each in simulation.slack.posted.values() if each[0] != "CADMINS"]
    assert (channel, thread) == ("C1", "2.2")
    assert f"Trial `{WEST_TRIAL}`: 1 GPU idle for 30 min" in warning.blocks[0]["text"]["text"]
    assert [alert.id for alert in await AlertStore(simulation.redis, "west").all()] == [IN_WEST]
    assert await AlertStore(simulation.redis).all() == ()


async def test_gpu_errors_elsewhere_name_their_cluster(simulation):
    await simulation.sample(1)
    [text] = [
        message.text for channel, _, message in simulation.slack.posted.values() if channel == "CADMINS"
    ]
    assert text.startswith(":warning: GPU errors in cluster `west`:\n• `w1` `GPU-1` A100, allocated to")


async def test_cluster_that_is_away_gets_no_warning_and_ends_none(simulation):
    await simulation.sample(20)
    simulation.west.away = True
    await simulation.sample(40)
    assert simulation.of_west() == []
    simulation.west.away = False
    await simulation.sample(20)  # fewer than 80% of the window's samples
    assert simulation.of_west() == []
    await simulation.sample(20)
    [warning] = simulation.of_west()
    simulation.west.away, simulation.west.trials = True, []
    await simulation.sample(30)
    assert simulation.of_west() == [warning]
    simulation.west.away = False
    for _ in range(2):  # the second check confirms that it ended
        await simulation.sample(1)
    [ended] = simulation.of_west()
    assert "ended after" in ended


async def test_cluster_that_is_away_keeps_no_warning_from_others(simulation):
    simulation.west.away = True
    await simulation.run(0, a_pod(QUIET))
    assert [text.partition(": 1 GPU")[0] for text in simulation.texts()] == [
        f":zzz: <@{OWNER}> Trial `{TRIAL}`"
    ]


async def test_buttons_of_a_warning_elsewhere_act_on_its_trial(simulation):
    await simulation.sample(31)
    await simulation.click(Action.KEEP, alert=IN_WEST, hours=4)
    await simulation.click(Action.MEASURES, alert=IN_WEST)
    await simulation.click(Action.KILL, alert=IN_WEST, trial="x")
    await simulation.sample(1)
    [text] = simulation.of_west()
    assert f"Snoozed by {OWNER.lower()} until" in text
    [(_, shown)] = simulation.slack.ephemeral_messages
    assert shown.startswith("GPU utilization over the last 30 min (dcgm-exporter):\n• `lr-calm-heron-x`")
    [cancel] = await simulation.store.commands("lr-calm-heron")
    assert (cancel.action, cancel.trial) == (Action.KILL, WEST_TRIAL)


async def test_button_of_a_removed_cluster_is_answered(simulation):
    await simulation.click(Action.KEEP, alert="idle/gone:sweeps/lr-x-y", hours=4)
    await simulation.run()
    assert simulation.slack.ephemeral_messages == [(OWNER, GONE)]
    assert await simulation.store.commands(str(ITEM)) == []


async def test_failure_in_one_cluster_is_raised_after_the_others_were_checked(simulation):
    class Broken:
        async def pods(self, _):
            raise OSError("broken")

    simulation.watching = IdleMonitors(simulation.clients, simulation.redis, Broken())
    with pytest.raises(OSError, match="broken"):
        await simulation.sample(31)
    assert len(simulation.of_west()) == 1


def test_cluster_of_an_alert_is_in_its_id():
    assert [cluster_of(each) for each in ("idle/sweeps/lr-x", IN_WEST, "")] == ["main", "west", "main"]
