"""The stored form of results: whole, small enough for a ConfigMap, and the best trials first to stay."""

import json
import random
import zlib

import pytest

from bot.core.stored_format import NewerFormatError
from bot.sweep.results.models import FORMAT, MAX_STORED, dump, load
from k8s.engine import TrialState
from tests.bot.factories import NOW
from tests.bot.sweep.results.factories import a_result, some_results

FULL = a_result(
    more={"acc": 0.9},
    started=NOW,
    ended=NOW,
    node="n1",
    gpu_model="NVIDIA A100",
    gpu_hours=1.5,
    utilization=0.4,
    cost=3.75,
    run_url="http://mlflow/#/1",
)


def test_stored_results_are_read_as_they_were_and_newer_ones_rejected():
    results = some_results(FULL, a_result("t2", None, TrialState.FAILED), best="t1", katib_best="t2")
    assert load(dump(results)) == results
    stored = json.loads(FORMAT.dump(some_results())) | {"schema": FORMAT.schema + 1, "trials": "elsewhere"}
    with pytest.raises(NewerFormatError, match="newer Sweepbot"):
        load(zlib.compress(json.dumps(stored).encode()))


def test_twenty_thousand_trials_fit_into_a_config_map_with_the_best_of_them():
    chance = random.Random(7)  # noqa: S311
    trials = [
        a_result(
            f"{chance.getrandbits(32):08x}", chance.random(), parameters={"n" * 200: repr(chance.random())}
        )
        for _ in range(20_000)
    ]
    results = some_results(*trials, best=min(trials, key=lambda trial: trial.value).name)
    kept = load(dump(results, limit=200_000))
    assert len(dump(results)) <= MAX_STORED
    assert len(dump(results, limit=200_000)) <= 200_000
    assert len(kept.trials) + kept.omitted == 20_000
    assert kept.best_trial.value == min(trial.value for trial in trials)
    worst_kept = max(trial.value for trial in kept.trials)
    assert sum(trial.value <= worst_kept for trial in trials) == len(kept.trials) > 1000


@pytest.mark.parametrize("stored", [b"", b"x", zlib.compress(b"{}"), zlib.compress(b"[" * 10_000)])
def test_invalid_stored_results_are_a_value_error(stored):
    with pytest.raises(ValueError, match=r"\w"):
        load(stored)
