"""What people ask after a sweep has ended: promote it, compare it, and its results when all else is gone."""

from dataclasses import replace

import pytest

from bot.core.record import Phase
from bot.platform.storage.sweep_configmap import RETIRED
from bot.sweep.reports import past_sweeps
from bot.sweep.results.store import ResultsStore
from tests.scenarios.slack_session import open_session
from tests.scenarios.sweep_in_memory import SWEEP

OTHER = "lr-calm-heron"


@pytest.fixture(autouse=True)
def unlimited(monkeypatch):
    """The last messages of a sweep come after many others."""

    async def at_once(*_):
        return 0.0

    monkeypatch.setattr("bot.platform.slack.rate_limit.RateLimiter.wait", at_once)


async def test_promote_starts_the_best_parameters_with_seeds_on_the_same_commit(redis):
    async with open_session(redis, image=True) as instance:
        await instance.until(Phase.SUCCEEDED)
        _, reported = await instance.types("promote branch=other")
        assert "`promote` repeats the best trial as it is." in reported[-1]
        _, reported = await instance.types(f"promote {SWEEP} seeds=3", person="grace")
        assert "queued: a promotion of *<" in reported[-1]
        [made] = await instance.simulation.store.active()
        record = await instance.simulation.store.get(made)
        assert (record.request.seeds, record.requester.user_name) == ("1-3", "grace")
        assert record.request.cmd == "python train.py --width=c"
        assert (record.request.promotes.sweep, record.request.promotes.value) == (SWEEP, 0.1)
        assert record.request.commit == instance.simulation.last.plan.commit


async def test_history_of_a_space_is_read_from_all_its_ended_sweeps(redis):
    async with open_session(redis, image=True) as instance:
        await instance.until(Phase.SUCCEEDED)
        await instance.rounds(2)
        store = ResultsStore(instance.simulation.cluster, "sweeps")
        results = await store.get(SWEEP)
        await store.save(replace(results, sweep=OTHER, space=replace(results.space, name="other")))
        answer, _ = await instance.types("history", person="grace")  # who has started none
        assert "Usage: `/sweep history space=lr`" in answer
        answer, _ = await instance.types("history lr")
        assert answer.startswith("Looking up `lr`")
        await past_sweeps.answer_history(
            "lr", replace(instance.simulation.clients, cluster=instance.simulation.cluster)
        )
        [message] = [
            each["text"] for each in instance.slack.ephemerals("ada") if "of space `lr`" in each["text"]
        ]
        head = "Best `loss` of space `lr` in 1 sweep: *0.1* (minimize), by *ada* in "
        assert f"{head}*<{instance.simulation.last.permalink}" in message
        assert OTHER not in message
        assert await instance.simulation.store.commands("history: lr") == []


async def test_results_and_comparison_are_there_when_all_else_of_a_sweep_is_gone(redis):
    async with open_session(redis, image=True) as instance:
        await instance.until(Phase.SUCCEEDED)
        await instance.rounds(2)
        simulation, store = instance.simulation, ResultsStore(instance.simulation.cluster, "sweeps")
        await store.save(replace(await store.get(SWEEP), sweep=OTHER))
        for kind in ("Experiment", "Trial", "Pod"):
            for obj in simulation.kubernetes.list(kind):
                simulation.kubernetes.delete(kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
        _, reported = await instance.types(f"results {SWEEP}")
        assert "`loss` 0.1 in `lr-brave-otter-" in reported[-1]
        simulation.kubernetes.patch("ConfigMap", "sweeps", f"sweep-{SWEEP}", RETIRED)
        await redis.flushall()

        _, reported_text = await instance.types(f"results {SWEEP}")
        assert "3 trials by `loss`" in reported_text[-1]
        _, reported_text = await instance.types(f"compare {SWEEP} {OTHER}")
        assert f"Best: `{SWEEP}` and `{OTHER}`, 0.1 (minimize `loss`)." in reported_text[-1]
        assert "the same commit" in reported_text[-1]
        _, reported_text = await instance.types(f"logs {SWEEP}")
        assert "only its results are kept" in reported_text[-1]
        await instance.types("results lr-never-was")
        await simulation.round(item="lr-never-was")
        assert "No sweep named `lr-never-was`" in instance.slack.ephemerals("ada")[-1]["text"]
