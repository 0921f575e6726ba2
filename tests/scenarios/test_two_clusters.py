"""Trials in another cluster than Sweepbot's own: which objects are where, and what its outage does."""

from dataclasses import replace
from functools import partial

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase, dump, load
from bot.core.work_item import WorkItem
from bot.platform.clusters.connections import Clusters, Identities
from bot.platform.storage.work_queue import Lease
from bot.sweep.results.store import ResultsStore
from bot.sweep.sweeps.reconciler import reconcile
from k8s.api import remote
from k8s.api.remote import RemoteClient
from k8s.retry import Retry
from local.kubernetes.apiserver.api import serve
from tests.bot.factories import OWNER
from tests.scenarios.sweep_in_memory import SWEEP, Clock
from tests.scenarios.two_clusters import CLUSTERS, IN_WEST, TwoClusters


async def until(simulation, phase, rounds=40):
    for _ in range(rounds):
        await simulation.round()
        if (await simulation.record()).phase is phase:
            return simulation.last
    raise AssertionError(f"{simulation.last.phase}: {simulation.texts()}")


def headline(simulation):
    return simulation.slack.parents[-1].blocks[0]["text"]["text"]


@pytest.fixture
async def running(redis):
    simulation = TwoClusters(redis, Clock(None), endless="trainings", **IN_WEST)
    async with simulation.started():
        await until(simulation, Phase.RUNNING)
        yield simulation


async def test_sweep_named_a_cluster_runs_there_and_keeps_its_record_at_home(redis):
    simulation = TwoClusters(redis, Clock(None), **IN_WEST)
    async with simulation.started():
        ended = await until(simulation, Phase.SUCCEEDED)
        await simulation.round()
        assert (ended.cluster, ended.progress.succeeded) == ("west", 3)
        assert {each["metadata"]["name"] for each in simulation.home.list("ConfigMap")} >= {f"sweep-{SWEEP}"}
        assert [simulation.home.list(kind) for kind in ("Experiment", "Trial", "Job", "Pod")] == [[]] * 4
        assert (len(simulation.kubernetes.list("Trial")), simulation.kubernetes.list("ConfigMap")) == (3, [])
        assert "cluster `west`" in str(simulation.slack.parents[-1].blocks)
        assert "hasn't answered" not in str([each.blocks for each in simulation.slack.parents])
        kept = await ResultsStore(simulation.cluster, "sweeps").get(SWEEP)
        assert len(kept.trials) == 3


async def test_unreachable_cluster_is_shown_and_fails_nothing(running):
    running.cut()
    for _ in range(12):
        await running.round()
    record = await running.record()
    assert record.phase is Phase.RUNNING
    assert "Cluster `west` hasn't answered since <!date" in headline(running)
    assert "continues when the cluster answers again" in headline(running)
    shown = len(running.slack.parents)
    await running.round()
    assert len(running.slack.parents) == shown
    running.cut(away=False)
    await running.round()
    assert "hasn't answered" not in headline(running)
    assert not any("Retrying" in text or ":x:" in text for text in running.slack.posted), running.slack.posted


async def test_cancel_during_an_outage_frees_the_gpus_when_the_cluster_is_back(running):
    running.cut()
    await running.store.add_command(SWEEP, Command(action=Action.CANCEL, user=OWNER, user_name="ada"))
    for _ in range(3):
        await running.round()
    record = await running.record()
    assert (record.phase, record.cancelled_by) == (Phase.STOPPING, OWNER)
    assert len(running.gpus_held()) == 2
    assert "hasn't answered since" in headline(running)
    assert "Remaining pods are stopped when the cluster answers again." in headline(running)
    running.cut(away=False)
    await until(running, Phase.CANCELLED)
    assert running.gpus_held() == []
    assert "hasn't answered" not in headline(running)


async def test_question_during_an_outage_is_answered_and_a_change_waits(running):
    running.cut()
    for action in (Action.RESULTS, Action.DRAIN):
        await running.store.add_command(SWEEP, Command(action=action, user=OWNER, user_name="ada"))
    await running.round()
    assert [text for _, text in running.slack.ephemeral_messages if "Can't answer about" in text] != []
    assert [each.action for each in await running.store.commands(SWEEP)] == [Action.DRAIN]
    running.cut(away=False)
    await running.round()
    assert (await running.record()).draining == "drained"


async def test_ended_sweep_answers_from_home_after_its_cluster_is_gone(redis):
    simulation = TwoClusters(redis, Clock(None), **IN_WEST)
    async with simulation.started():
        while not (ended := await until(simulation, Phase.SUCCEEDED)) or ended.outbox:
            await simulation.round()
        simulation.clients.config = replace(simulation.clients.config, clusters=CLUSTERS[:1])
        for action in (Action.RESULTS, Action.LOGS, Action.RERUN):
            await simulation.store.add_command(SWEEP, Command(action=action, user=OWNER, user_name="ada"))
        await simulation.round()
        answers = [str(getattr(text, "text", text)) for _, text in simulation.slack.ephemeral_messages]
        assert any("All trials of" in text for text in answers), answers
        assert any("a rerun of *<" in text for text in answers), answers
        assert any("Can't answer about `lr-brave-otter` now: cluster west:" in text for text in answers)
        assert await simulation.store.commands(SWEEP) == []
        assert "hasn't been seen" not in headline(simulation)
        lease = Lease(WorkItem.sweep(SWEEP), "worker", failures=0, key="life:lease:worker")
        assert await reconcile(lease, simulation.clients) is None, "nothing is left to do"


async def test_cluster_removed_from_the_configuration_pauses_its_sweeps_until_it_is_named_again(running):
    running.clients.config = replace(running.clients.config, clusters=CLUSTERS[:1])
    for _ in range(3):
        await running.round()
    assert (await running.record()).phase is Phase.RUNNING
    assert "*Fix:* Add `west` to `clusters:` again." in headline(running)
    running.clients.config = replace(running.clients.config, clusters=CLUSTERS)
    await running.round()
    assert "hasn't answered" not in headline(running)


async def test_record_of_an_earlier_version_is_in_the_home_cluster(running):
    record = replace(await running.record(), cluster="main")
    text = dump(record)
    for new in ('"unseen_since":null,', '"unseen_reason":"",'):
        text = text.replace(new, "")
    assert load(text).cluster == "main"


@pytest.mark.parametrize("crash_at", range(3, 60, 7))
async def test_crashed_worker_leaves_the_same_objects(redis, crash_at):
    simulation = await TwoClusters(redis, Clock(crash_at), **IN_WEST).run()
    assert (await simulation.record()).phase is Phase.SUCCEEDED
    assert [each["metadata"]["name"] for each in simulation.kubernetes.list("Experiment")] == [SWEEP]
    assert simulation.gpus_held() == []


async def test_killed_api_server_is_waited_for_and_a_cancel_then_frees_its_gpus(redis, tmp_path, monkeypatch):
    """The client, the watches, and the API server are real; the server is killed and restored."""
    monkeypatch.setattr(remote, "RETRY", Retry(base=0.0))
    simulation = TwoClusters(redis, Clock(None), endless="trainings", **IN_WEST)
    server = await serve(simulation.kubernetes)
    server.kubeconfig(tmp_path / "west")
    known = Identities(simulation.cluster, "sweeps").known
    client = RemoteClient("west", str(tmp_path / "west"), "", partial(known, "west"))
    simulation.clients.clusters = Clusters(lambda _: client)
    async with simulation.started():
        await until(simulation, Phase.RUNNING)
        await server.close()
        await simulation.store.add_command(SWEEP, Command(action=Action.CANCEL, user=OWNER, user_name="ada"))
        for _ in range(3):
            await simulation.round()
        assert (await simulation.record()).phase is Phase.STOPPING
        assert len(simulation.gpus_held()) == 2
        assert "Cluster `west` hasn't answered since" in headline(simulation)
        again = await serve(simulation.kubernetes, int(server.url.rpartition(":")[2]))
        await until(simulation, Phase.CANCELLED, rounds=60)
        assert simulation.gpus_held() == []
    stored = simulation.home.get("ConfigMap", "sweeps", "sweepbot-clusters")["data"]
    assert stored == {"west": simulation.kubernetes.get("Namespace", "", "kube-system")["metadata"]["uid"]}
    await client.close()
    await again.close()
