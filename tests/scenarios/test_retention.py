"""Ended sweeps and Katib's objects are deleted once expired; no others are."""

from copy import copy
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.record import Phase
from bot.measure.gpus.hourly_store import HourlyStore
from bot.platform.clusters.connections import Clusters
from bot.platform.config.clusters import TrialCluster
from bot.platform.storage import sweep_configmap
from bot.platform.storage.free_capacity import CapacityStore
from bot.sweep.sweeps.retention import GC_INTERVAL, SweepGc
from k8s.api.errors import ApiError
from k8s.katib.spec import REQUEST_ID
from k8s.objects import SWEEP_LABEL
from tests.bot.factories import CONFIG, NOW, PLAN, SETTINGS, a_sweep
from tests.scenarios.sweep_in_memory import SPACE, Clock, SimulatedSweep


async def visit(simulation, days):
    """So many days from now, where sweeps stay for thirty."""
    clients = copy(simulation.clients)
    clients.settings = SETTINGS.model_copy(update={"sweep_days": 30})
    clients.now = lambda: NOW + timedelta(days=days)
    assert await SweepGc(clients).run() == GC_INTERVAL
    await simulation.settle()
    return {kind for kind, _, _ in simulation.objects()}


async def end(simulation):
    """Reconcile until the sweep has ended and its last message is posted."""
    while not (record := await simulation.record()).phase.final or record.outbox:
        await simulation.round()


def records(simulation):
    kept = simulation.kubernetes.list("ConfigMap", "sweeps")
    return {obj["metadata"]["name"] for obj in kept if "record" in obj.get("data", {})}


@pytest.fixture
async def simulation(redis):
    async with SimulatedSweep(redis, Clock(None), image=True).started() as simulation:
        await end(simulation)
        yield simulation


async def test_expired_sweep_is_deleted_with_its_trials_and_pods(simulation, caplog):
    caplog.set_level("INFO", "bot.sweep.sweeps.retention")
    there = await visit(simulation, 29)
    assert {"ConfigMap", "Experiment", "Trial", "Job", "Pod"} <= there
    assert await visit(simulation, 31) == {"ConfigMap"}
    [name] = simulation.kubernetes.list("ConfigMap", "sweeps", {"sweepbot/state": "retired"})
    assert not name.get("data")
    assert sweep_configmap.is_retired(name)
    assert "deleted lr-brave-otter, ended 2026-11-21" in caplog.text


async def test_experiment_of_another_sweep_with_the_name_is_kept(simulation):
    changed = {"metadata": {"annotations": {REQUEST_ID: "of-another-request"}}}
    simulation.kubernetes.patch("Experiment", "sweeps", "lr-brave-otter", changed)
    assert "Experiment" in await visit(simulation, 31)
    assert records(simulation) == set()


async def test_extended_sweep_is_kept(simulation):
    await simulation.redis.sadd(simulation.store._key("active"), "lr-brave-otter")
    assert "Experiment" in await visit(simulation, 31)


async def test_namespace_that_is_no_longer_configured_keeps_no_other_sweep(simulation, caplog, monkeypatch):
    elsewhere = a_sweep(Phase.SUCCEEDED, id="lr-able-ant")
    experiment = {**PLAN.experiment, "metadata": {**PLAN.experiment["metadata"], "namespace": "lost"}}
    elsewhere = replace(elsewhere, plan=replace(PLAN, experiment=experiment))
    simulation.kubernetes.create(sweep_configmap.config_map(elsewhere))
    listed = simulation.cluster.list

    async def refused(kind, namespace, **selectors):
        if namespace == "lost":
            raise ApiError(403, "Forbidden", "experiments is forbidden in the namespace lost")
        return await listed(kind, namespace, **selectors)

    monkeypatch.setattr(simulation.cluster, "list", refused)
    await visit(simulation, 31)
    assert records(simulation) == {"sweep-lr-able-ant"}
    assert "kept lr-able-ant: the cluster rejected its deletion: " in caplog.text


class Sick:
    """Another cluster whose API server answers, but fails."""

    async def list(self, *_, **__):
        raise ApiError(500, "InternalError", "etcdserver: request timed out")


async def test_cluster_that_fails_keeps_no_other_sweep(simulation, caplog):
    elsewhere = a_sweep(Phase.SUCCEEDED, id="lr-able-ant", cluster="west", plan=PLAN)
    simulation.kubernetes.create(sweep_configmap.config_map(elsewhere))
    clients = simulation.clients
    clients.clusters = Clusters(lambda _: Sick())
    clients.usage, clients.capacity = HourlyStore(simulation.redis), CapacityStore(simulation.redis)
    clients.config = replace(CONFIG, clusters=(TrialCluster(name="west", kubeconfig="/west"),))
    await visit(simulation, 31)
    assert records(simulation) == {"sweep-lr-able-ant"}
    assert "kept the suggestions in sweeps: etcdserver: request timed out" in caplog.text


async def test_unfinished_or_unreadable_sweep_is_kept(simulation, caplog):
    running = a_sweep(Phase.RUNNING, id="lr-calm-heron")
    newer = sweep_configmap.config_map(a_sweep(Phase.SUCCEEDED, id="lr-old-fox"))
    newer["data"]["record"] = newer["data"]["record"].replace('"schema":2', '"schema":99')
    [suggestion] = simulation.kubernetes.list("Suggestion")
    for config_map, name in ((sweep_configmap.config_map(running), running.id), (newer, "lr-old-fox")):
        meta = {"name": name, "namespace": "sweeps", "labels": suggestion["metadata"]["labels"]}
        meta["labels"] = meta["labels"] | {SWEEP_LABEL: name}
        simulation.kubernetes.create(config_map)
        simulation.kubernetes.create({**suggestion, "metadata": meta})
    await visit(simulation, 31)
    assert records(simulation) == {"sweep-lr-calm-heron", "sweep-lr-old-fox"}
    searching = {each["metadata"]["name"] for each in simulation.kubernetes.list("Suggestion")}
    assert searching == {"lr-calm-heron", "lr-old-fox"}
    assert "kept sweep-lr-old-fox: unreadable record" in caplog.text


async def test_suggestion_service_is_deleted_a_day_after_the_end_and_its_sweep_kept(simulation):
    def services():
        return [each["metadata"]["name"] for each in simulation.kubernetes.list("Suggestion")]

    await visit(simulation, 1)
    assert services() == ["lr-brave-otter"]
    await simulation.redis.flushall()  # the record in the cluster is enough
    there = await visit(simulation, 1.1)
    assert (services(), "Experiment" in there, "Trial" in there) == ([], True, True)
    await simulation.settle()
    assert services() == []  # Katib makes none again


async def test_suggestion_service_of_an_extendable_sweep_is_kept_with_it(redis):
    space = f"{SPACE}extendable: true\n"
    async with SimulatedSweep(redis, Clock(None), image=True, space=space).started() as simulation:
        await end(simulation)
        await visit(simulation, 29)
        assert len(simulation.kubernetes.list("Suggestion")) == 1
        await visit(simulation, 31)
        assert simulation.kubernetes.list("Suggestion") == []
