"""What a sweep leaves in its thread and in the cluster when it ends."""

from dataclasses import replace

import pytest

from bot.core.record import Phase
from bot.results.store import ResultsStore
from bot.sweeps.end_results import keep_results, stored_results
from k8s.katib.status import TrialState
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep


@pytest.fixture
async def ended(redis):
    async with SimulatedSweep(redis, Clock(None), image=True).started() as simulation:
        for _ in range(40):
            await simulation.round()
            if (await simulation.record()).phase.final:
                break
        yield simulation


async def test_results_of_an_ended_sweep_outlive_katibs_objects_redis_and_the_record(ended):
    for kind in ("Experiment", "Trial", "Pod"):
        for obj in ended.kubernetes.list(kind):
            ended.kubernetes.delete(kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
    await ended.redis.flushall()
    found = await ResultsStore(ended.cluster, "sweeps").get(SWEEP)
    assert (found.phase, found.space.metric, len(found.trials)) == (Phase.SUCCEEDED, "loss", 3)
    assert sorted(trial.value for trial in found.trials) == [0.1, 0.3, 0.5]
    assert found.best_trial.parameters == {"width": "c"}
    assert {trial.state for trial in found.trials} == {TrialState.SUCCEEDED}
    assert {trial.node for trial in found.trials} == {"n1"}
    assert await keep_results(ended.last, ended.clients) == found  # from the stored record


async def test_results_table_is_in_the_thread_once(ended):
    tables = [text for text in ended.slack.said if text.startswith("3 trials by `loss`")]
    assert len(tables) == 1


async def test_results_of_another_sweep_of_this_name_are_neither_used_nor_replaced(ended):
    other = replace(ended.last, request_id="another")
    before = await stored_results(SWEEP, ended.clients)
    assert await keep_results(other, ended.clients) is None
    assert await stored_results(SWEEP, ended.clients) == before


async def test_unreadable_results_are_as_none(ended):
    ended.kubernetes.patch("ConfigMap", "sweeps", f"results-{SWEEP}", {"binaryData": {"results": "AAAA"}})
    assert await stored_results(SWEEP, ended.clients) is None
