"""Ended sweeps leave the cluster when their days are over, with all that Katib made of them; no others do."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.record import Phase
from bot.storage import sweep_configmap
from bot.sweeps.retention import GC_INTERVAL, SweepGc
from k8s.errors import ApiError
from k8s.katib.spec import REQUEST_ID
from tests.bot.factories import NOW, PLAN, a_sweep
from tests.scenarios.sweep_in_memory import SPACE, Clock, SimulatedSweep


async def visit(life, days):
    """So many days from now, where sweeps stay for thirty."""
    here = {"cluster": life.cluster, "store": life.store, "namespace": "sweeps", "namespaces": ("sweeps",)}
    assert await SweepGc(**here, days=30, now=lambda: NOW + timedelta(days=days)).run() == GC_INTERVAL
    await life.settle()
    return {kind for kind, _, _ in life.objects()}


def records(life):
    kept = life.kubernetes.list("ConfigMap", "sweeps")
    return {obj["metadata"]["name"] for obj in kept if "record" in obj.get("data", {})}


@pytest.fixture
async def life(redis):
    async with SimulatedSweep(redis, Clock(None), image=True).started() as life:
        while not (await life.record()).phase.final:
            await life.round()
        yield life


async def test_expired_sweep_is_deleted_with_its_trials_and_pods(life, caplog):
    caplog.set_level("INFO", "bot.sweeps.retention")
    there = await visit(life, 29)
    assert {"ConfigMap", "Experiment", "Trial", "Job", "Pod"} <= there
    assert await visit(life, 31) == {"ConfigMap"}
    [name] = life.kubernetes.list("ConfigMap", "sweeps", {"sweepbot/state": "retired"})
    assert not name.get("data")
    assert sweep_configmap.is_retired(name)
    assert "deleted lr-brave-otter, ended 2026-11-21" in caplog.text


async def test_experiment_of_another_sweep_with_the_name_is_kept(life):
    changed = {"metadata": {"annotations": {REQUEST_ID: "of-another-request"}}}
    life.kubernetes.patch("Experiment", "sweeps", "lr-brave-otter", changed)
    assert "Experiment" in await visit(life, 31)
    assert records(life) == set()


async def test_extended_sweep_is_kept(life):
    await life.redis.sadd(life.store._key("active"), "lr-brave-otter")
    assert "Experiment" in await visit(life, 31)


async def test_namespace_that_is_no_longer_configured_keeps_no_other_sweep(life, caplog, monkeypatch):
    elsewhere = a_sweep(Phase.SUCCEEDED, id="lr-able-ant")
    experiment = {**PLAN.experiment, "metadata": {**PLAN.experiment["metadata"], "namespace": "lost"}}
    elsewhere = replace(elsewhere, plan=replace(PLAN, experiment=experiment))
    life.kubernetes.create(sweep_configmap.config_map(elsewhere))
    listed = life.cluster.list

    async def refused(kind, namespace, **selectors):
        if namespace == "lost":
            raise ApiError(403, "Forbidden", "experiments is forbidden in the namespace lost")
        return await listed(kind, namespace, **selectors)

    monkeypatch.setattr(life.cluster, "list", refused)
    await visit(life, 31)
    assert records(life) == {"sweep-lr-able-ant"}
    assert "kept lr-able-ant: the cluster rejected its deletion: " in caplog.text


async def test_unfinished_or_unreadable_sweep_is_kept(life, caplog):
    running = a_sweep(Phase.RUNNING, id="lr-calm-heron")
    newer = replace(a_sweep(Phase.SUCCEEDED), id="lr-old-fox", schema=99)
    for sweep in (running, newer):
        life.kubernetes.create(sweep_configmap.config_map(sweep))
    await visit(life, 31)
    assert records(life) == {"sweep-lr-calm-heron", "sweep-lr-old-fox"}
    assert "kept sweep-lr-old-fox: unreadable record" in caplog.text


async def test_suggestion_service_is_deleted_a_day_after_the_end_and_its_sweep_kept(life):
    def services():
        return [each["metadata"]["name"] for each in life.kubernetes.list("Suggestion")]

    await visit(life, 1)
    assert services() == ["lr-brave-otter"]
    there = await visit(life, 1.1)
    assert (services(), "Experiment" in there, "Trial" in there) == ([], True, True)
    await life.settle()
    assert services() == []  # Katib makes none again


async def test_suggestion_service_of_an_extendable_sweep_is_kept_with_it(redis):
    space = f"{SPACE}extendable: true\n"
    async with SimulatedSweep(redis, Clock(None), image=True, space=space).started() as life:
        while not (await life.record()).phase.final:
            await life.round()
        await visit(life, 29)
        assert len(life.kubernetes.list("Suggestion")) == 1
        await visit(life, 31)
        assert life.kubernetes.list("Suggestion") == []
