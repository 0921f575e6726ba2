"""When a `parallel=auto` sweep runs more trials at once, or fewer."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.events import Progress
from bot.core.pace import FreeCapacity, Pace, PaceChange
from bot.core.record import Phase
from bot.lifecycle.observation import Observation
from bot.lifecycle.pace import GROW_AFTER, first_only, follow_pace, is_paced_end
from bot.messages.pace import pace_line
from k8s.katib.patches import GOAL_REACHED, MAX_TRIALS_REACHED
from tests.bot.factories import NOW, PLAN, a_sweep
from tests.bot.lifecycle.observations import COUNTS, DONE, OPEN, RAW, a_trial

SPACE = replace(PLAN.space, auto=True, parallel=8, max_trials=40)
SWEEP = a_sweep(Phase.RUNNING, submitted=True, plan=replace(PLAN, space=SPACE))
BEFORE = NOW - GROW_AFTER


def a_capacity(trials=0, steady=0, **facts):
    return FreeCapacity(at=NOW, gpus=2, trials=trials, steady=steady, **facts)


def chosen(capacity, *, target=4, active=4, at=BEFORE, most=0, **changes):
    sweep = replace(SWEEP, pace=Pace(target=target, at=at), **changes)
    trials = tuple(a_trial(f"t{number}") for number in range(active))
    seen = Observation(experiment=OPEN, trials=trials, capacity=capacity, most_parallel=most)
    return follow_pace(sweep, seen, NOW).pace


@pytest.mark.parametrize(("trials", "steady", "target"), [(2, 2, 6), (3, 1, 5), (3, 0, 4), (20, 20, 8)])
def test_growth_needs_free_gpus_in_two_measurements(trials, steady, target):
    assert chosen(a_capacity(trials, steady)).target == target


def test_first_growth_needs_one_measurement():
    pace = chosen(a_capacity(3, 0), target=1, active=1, at=None)
    assert (pace.target, pace.change, pace.gpus) == (4, PaceChange.GREW, 6)


@pytest.mark.parametrize(
    "held_back",
    [
        {"at": NOW - GROW_AFTER + timedelta(seconds=1)},
        {"active": 3},
        {"most": 4},
        {"progress": Progress(waiting=1)},
        {"progress": Progress(succeeded=36)},
        {"gated": True},
        {"drained_by": "U1"},
        {"paused_at": NOW},
        {"resuming": True},
    ],
    ids=str,
)
def test_sweep_does_not_grow(held_back):
    assert chosen(a_capacity(4, 4), **held_back).target == 4


@pytest.mark.parametrize(
    ("total", "made", "reason", "changes", "continues"),
    [
        (12, 12, MAX_TRIALS_REACHED, {}, True),
        (40, 12, MAX_TRIALS_REACHED, {}, False),  # it isn't lowered
        (39, 40, MAX_TRIALS_REACHED, {}, False),  # all trials have run
        (12, 12, GOAL_REACHED, {}, False),
        (12, 12, MAX_TRIALS_REACHED, {"gated": True}, False),
        (12, 12, MAX_TRIALS_REACHED, {"drained_by": "U1"}, False),
        (12, 12, MAX_TRIALS_REACHED, {"plan": replace(PLAN, space=replace(SPACE, auto=False))}, False),
    ],
)
def test_experiment_that_ended_at_a_lowered_count_continues(total, made, reason, changes, continues):
    raw = {**RAW, "spec": COUNTS | {"maxTrialCount": total}, "status": {"trials": made}}
    ended = replace(DONE, reason=reason, raw=raw)
    assert is_paced_end(replace(SWEEP, **changes), ended) is continues


@pytest.mark.parametrize(("to_yield", "target"), [(1, 3), (2, 2), (9, 1)])
def test_sweep_yields_to_waiting_pods(to_yield, target):
    pace = chosen(a_capacity(to_yield=to_yield, who="team nlp", requested=8), at=NOW - timedelta(seconds=1))
    assert (pace.target, pace.change, pace.who, pace.gpus) == (target, PaceChange.YIELDS, "team nlp", 8)


def test_trials_that_are_ending_count_as_yielded():
    assert chosen(a_capacity(to_yield=2), target=4, active=6).target == 4


def test_measurement_before_the_last_change_is_outdated():
    assert chosen(a_capacity(to_yield=2), at=NOW).target == 4


def test_sweep_whose_own_trials_wait_stops_replacing_them():
    pace = chosen(a_capacity(waiting=2))
    assert (pace.target, pace.change) == (2, PaceChange.FULL)


def test_lower_limit_takes_effect_without_a_measurement():
    pace = chosen(None, most=2)
    assert (pace.target, pace.change) == (2, PaceChange.LIMITED)


def test_unknown_capacity_is_reported_and_changes_nothing():
    pace = chosen(FreeCapacity(at=NOW, gpus=2, trials=None))
    assert (pace.target, pace.change) == (4, PaceChange.UNKNOWN)


@pytest.mark.parametrize(
    ("pace", "running", "line"),
    [
        (Pace(), 1, "Running up to 1 trial (auto): more start once GPUs are free, up to 8"),
        (
            Pace(target=6, change=PaceChange.GREW, gpus=2),
            4,
            "Running up to 6 trials (auto): 2 more GPUs became free",
        ),
        (
            Pace(target=2, change=PaceChange.YIELDS, gpus=8, who="team nlp"),
            4,
            "Letting trials finish, down to 2 (auto): team nlp waits for 8 GPUs",
        ),
        (
            Pace(target=2, change=PaceChange.YIELDS, gpus=8, who="team nlp"),
            2,
            "Running up to 2 trials (auto): team nlp was waiting for 8 GPUs",
        ),
        (
            Pace(target=2, change=PaceChange.FULL),
            2,
            "Running up to 2 trials (auto): no more GPUs are free",
        ),
    ],
)
def test_line_says_how_many_trials_run_and_why(pace, running, line):
    assert pace_line(replace(SWEEP, pace=pace, progress=Progress(running=running))) == line


def test_line_is_for_auto_parallel_sweeps_only():
    assert pace_line(a_sweep(Phase.RUNNING, submitted=True)) == ""


@pytest.mark.parametrize(
    ("auto", "most", "total", "first"),
    [
        (True, 40, 1, True),  # the gate's
        (True, 40, 2, False),  # throttled
        (True, 1, 1, False),
        (False, 40, 39, True),
        (False, 40, 40, False),
    ],
)
def test_first_only_is_a_lower_count_than_asked_for_but_not_a_throttled_one(auto, most, total, first):
    experiment = replace(OPEN, raw={**RAW, "spec": COUNTS | {"maxTrialCount": total}})
    assert first_only(replace(SPACE, auto=auto, max_trials=most), experiment) is first
