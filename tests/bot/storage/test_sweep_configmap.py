"""The copy of a sweep's record in its ConfigMap."""

from dataclasses import replace

import pytest

from bot.core.record import Phase, dump
from bot.core.stopping import EarlyStop, StoppingRule
from bot.storage.sweep_configmap import MAX_RECORD, config_map, read
from tests.bot.factories import a_sweep

STOP = EarlyStop(step=32, value=0.123456789, cutoff=0.234567891, others=300, seconds=1234.5)


def with_median(trials):
    """A sweep by the median rule, whose trials reached six rungs or, every other one, all."""
    names = [f"lr-brave-otter-{number:08x}" for number in range(trials)]
    rungs = {
        rung: {name: 1 / (number + 3) for number, name in enumerate(names) if place < 6 or number % 2}
        for place, rung in enumerate(StoppingRule(name="median").rungs)
    }
    return a_sweep(Phase.RUNNING, submitted=True, rungs=rungs, ended_early=dict.fromkeys(names[::2], STOP))


@pytest.mark.parametrize(
    ("trials", "left_out"),
    [(500, {}), (3_000, {"rungs": {}}), (20_000, {"rungs": {}, "ended_early": {}})],
)
def test_config_map_leaves_out_what_is_too_large_for_kubernetes(trials, left_out):
    sweep = with_median(trials)
    stored = config_map(sweep)
    assert len(stored["data"]["record"].encode()) <= MAX_RECORD
    assert read(stored) == replace(sweep, **left_out)
    assert (len(dump(sweep)) > MAX_RECORD) == bool(left_out)
