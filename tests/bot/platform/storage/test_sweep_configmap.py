"""The copy of a sweep's record in its ConfigMap."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from bot.core.feature_state import FeatureState
from bot.core.record import Phase, dump
from bot.core.stopping import EarlyStop, Rungs, StoppingRule
from bot.platform.storage.sweep_configmap import MAX_RECORD, config_map, read
from tests.bot.factories import a_sweep

STOP = EarlyStop(step=32, value=0.123456789, cutoff=0.234567891, others=300, seconds=1234.5)


@dataclass(frozen=True, kw_only=True)
class LargeState(FeatureState):
    """What a feature such as early stopping remembers about the attempt."""

    name: ClassVar[str] = "large"
    of_one_attempt: ClassVar[bool] = True

    rungs: Rungs = field(default_factory=dict)
    ended: dict[str, EarlyStop] = field(default_factory=dict)
    count: int = 0


def with_median(trials):
    """A sweep by the median rule, whose trials reached six rungs or, every other one, all."""
    names = [f"lr-brave-otter-{number:08x}" for number in range(trials)]
    rungs = {
        rung: {name: 1 / (number + 3) for number, name in enumerate(names) if place < 6 or number % 2}
        for place, rung in enumerate(StoppingRule(name="median").rungs)
    }
    state = LargeState(rungs=rungs, ended=dict.fromkeys(names[::2], STOP), count=7)
    return a_sweep(Phase.RUNNING, state, submitted=True)


@pytest.mark.parametrize(
    ("trials", "left_out"),
    [(500, {}), (3_000, {"rungs": {}}), (20_000, {"rungs": {}, "ended": {}})],
)
def test_config_map_leaves_out_what_is_too_large_for_kubernetes(trials, left_out):
    sweep = with_median(trials)
    stored = config_map(sweep)
    assert len(stored["data"]["record"].encode()) <= MAX_RECORD
    assert read(stored) == sweep.change(LargeState, **left_out)
    assert (len(dump(sweep)) > MAX_RECORD) == bool(left_out)
