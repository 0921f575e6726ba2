"""When a `parallel=auto` sweep runs more trials at once, or fewer."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.budget import Budget
from bot.core.events import Progress
from bot.core.pace import FreeCapacity
from bot.core.record import Phase
from bot.sweep.features.auto_parallel.decide import (
    GROW_AFTER,
    AutoParallelSeen,
    AutoParallelState,
    PaceChange,
    can_grow,
    follow,
    lines,
)
from bot.sweep.model import pace
from bot.sweep.model.experiment import ended_by_lowered_count, is_limited
from bot.sweep.model.observation import Observation
from k8s.engine import End
from tests.bot.factories import NOW, PLAN, a_sweep
from tests.bot.sweep.model.observations import DONE, OPEN, RAW, a_trial, after
from tests.cases import cases

SPACE = replace(PLAN.space, auto=True, parallel=8, max_trials=40)
SWEEP = a_sweep(Phase.RUNNING, submitted=True, plan=replace(PLAN, space=SPACE))
BEFORE = NOW - GROW_AFTER


def a_capacity(trials=0, steady=0, **facts):
    return FreeCapacity(at=NOW, gpus=2, trials=trials, steady=steady, **facts)


def chosen(capacity, *, target=4, active=4, at=BEFORE, most=0, **changes):
    """Return the number of parallel trials, and why."""
    sweep = SWEEP.put(AutoParallelState(at=at), parallel_now=target, **changes)
    trials = tuple(a_trial(f"t{number}") for number in range(active))
    seen = Observation(experiment=OPEN, trials=trials).put(AutoParallelSeen(capacity=capacity, most=most))
    found = follow(sweep, seen, NOW)
    return found.parallel_now, found.of(AutoParallelState)


@pytest.mark.parametrize(("trials", "steady", "target"), [(2, 2, 6), (3, 1, 5), (3, 0, 4), (20, 20, 8)])
def test_growth_needs_free_gpus_in_two_measurements(trials, steady, target):
    assert chosen(a_capacity(trials, steady))[0] == target


def test_measurement_decides_growth_and_trials_that_wait_or_end():
    grown = 4, AutoParallelState(at=NOW, change=PaceChange.GREW, gpus=6)
    assert chosen(a_capacity(3, 0), target=1, active=1, at=None) == grown
    assert chosen(a_capacity(to_yield=2), target=4, active=6)[0] == 4
    assert chosen(a_capacity(to_yield=2), at=NOW)[0] == 4
    assert chosen(a_capacity(waiting=2)) == (2, AutoParallelState(at=NOW, change=PaceChange.FULL))
    assert chosen(None, most=2) == (2, AutoParallelState(at=NOW, change=PaceChange.LIMITED))
    unknown = AutoParallelState(at=BEFORE, change=PaceChange.UNKNOWN)
    assert chosen(FreeCapacity(at=NOW, gpus=2, trials=None)) == (4, unknown)
    for target, line in (
        (4, "Running up to 4 trials (auto): more start once"),
        (8, "Running up to 8 trials (auto)"),
    ):
        sweep = SWEEP.put(unknown, parallel_now=target)
        seen = Observation(experiment=OPEN).put(AutoParallelSeen(capacity=a_capacity(0, 0)))
        assert lines(follow(sweep, seen, NOW))[0].startswith(line), "known again"
    assert lines(a_sweep(Phase.RUNNING, submitted=True)) == []
    going = SWEEP.put(AutoParallelState(at=NOW), parallel_now=4)
    assert after(going, experiment=OPEN).parallel_now == 4, "only a restart measures again"


@cases(
    "held_back",
    [
        {"at": NOW - GROW_AFTER + timedelta(seconds=1)},
        {"active": 3},
        {"most": 4},
        {"progress": Progress(waiting=1)},
        {"progress": Progress(succeeded=36)},
        {"first_only": True},
        {"draining": "drained"},
        {"holds": ("pause",)},
    ],
)
def test_sweep_does_not_grow(held_back):
    assert chosen(a_capacity(4, 4), **held_back)[0] == 4


@pytest.mark.parametrize(("others", "grows"), [({}, True), ({"to_yield": 1}, False), ({"waiting": 1}, False)])
def test_sweep_registers_growth_only_while_no_pods_wait(others, grows):
    seen = Observation(experiment=OPEN, trials=(a_trial("t1"),))
    assert can_grow(replace(SWEEP, parallel_now=1), a_capacity(4, 4, **others), seen, NOW) is grows


BUDGETED = replace(PLAN, budget=Budget(gpu_hours=9), space=replace(SPACE, auto=False))


@pytest.mark.parametrize(
    ("changes", "experiment", "counts"),
    [
        ({}, OPEN, (40, 1)),
        ({"parallel_now": 3}, OPEN, (40, 3)),
        ({"parallel_now": 3, "holds": ("pause",)}, OPEN, (40, 1)),  # as low as can be before a pause
        ({"parallel_now": 3}, DONE, (40, 3)),
        ({"parallel_now": 3, "holds": ("pause",)}, DONE, None),
        ({"parallel_now": 3}, replace(DONE, end=End.TARGET), None),
        ({"parallel_now": 3, "extending": True}, replace(DONE, end=End.TARGET), (40, 3)),
        ({"parallel_now": 3, "trials_now": 2}, OPEN, (2, 2)),
        ({"parallel_now": 3, "trials_now": 1}, OPEN, (2, 1)),
        ({"plan": BUDGETED}, OPEN, (40, 8)),
        ({"plan": BUDGETED, "holds": ("pause",)}, OPEN, None),
        ({"plan": replace(BUDGETED, budget=None)}, OPEN, None),
        ({"first_only": True}, OPEN, None),
        ({"draining": "drained"}, OPEN, None),
        ({"draining": "drained", "extending": True}, OPEN, (40, 1)),
    ],
)
def test_experiment_gets_the_counts_that_the_sweep_allows_now(changes, experiment, counts):
    status = {"trials": 1, "trialsSucceeded": 1}
    raw = RAW | {"spec": {"maxTrialCount": 4, "parallelTrialCount": 1}, "status": status}
    sweep, experiment = replace(SWEEP, **changes), replace(experiment, raw=raw)
    patch = pace.steer(sweep, sweep.plan, experiment, Observation(experiment=experiment), NOW)
    if counts is None:
        assert patch is None
    else:
        spec = raw["spec"] | patch.body["spec"]
        assert (spec["maxTrialCount"], spec["parallelTrialCount"]) == counts
        assert patch.optional is not sweep.extending


@pytest.mark.parametrize(
    ("total", "made", "end", "changes", "continues"),
    [
        (12, 12, End.ALL_TRIALS, {}, True),
        (40, 12, End.ALL_TRIALS, {}, False),  # it isn't lowered
        (39, 40, End.ALL_TRIALS, {}, False),  # all trials have run
        (12, 12, End.TARGET, {}, False),
        (12, 12, End.ALL_TRIALS, {"first_only": True}, False),
        (12, 12, End.ALL_TRIALS, {"draining": "drained"}, False),
        (12, 12, End.ALL_TRIALS, {"plan": replace(PLAN, space=replace(SPACE, auto=False))}, False),
    ],
)
def test_experiment_that_ended_at_a_lowered_count_continues(total, made, end, changes, continues):
    ended = replace(DONE, end=end, max_trials=total, made=made)
    assert ended_by_lowered_count(replace(SWEEP, **changes), Observation(experiment=ended)) is continues
    assert not ended_by_lowered_count(SWEEP, Observation())


@pytest.mark.parametrize(("to_yield", "target"), [(1, 3), (2, 2), (9, 1)])
def test_sweep_yields_to_waiting_pods(to_yield, target):
    capacity = a_capacity(to_yield=to_yield, who="team nlp", requested=8)
    why = AutoParallelState(at=NOW, change=PaceChange.YIELDS, who="team nlp", gpus=8)
    assert chosen(capacity, at=NOW - timedelta(seconds=1)) == (target, why)


@pytest.mark.parametrize(
    ("target", "why", "running", "line"),
    [
        (1, {}, 1, "Running up to 1 trial (auto): more start once GPUs are free, up to 8"),
        (
            6,
            {"change": PaceChange.GREW, "gpus": 2},
            4,
            "Running up to 6 trials (auto): 2 more GPUs became free",
        ),
        (
            2,
            {"change": PaceChange.YIELDS, "gpus": 8, "who": "team nlp"},
            4,
            "Letting trials finish, down to 2 (auto): team nlp waits for 8 GPUs",
        ),
        (
            2,
            {"change": PaceChange.YIELDS, "gpus": 8, "who": "team nlp"},
            2,
            "Running up to 2 trials (auto): team nlp was waiting for 8 GPUs",
        ),
        (2, {"change": PaceChange.FULL}, 2, "Running up to 2 trials (auto): no more GPUs are free"),
    ],
)
def test_line_says_how_many_trials_run_and_why(target, why, running, line):
    sweep = SWEEP.put(AutoParallelState(**why), parallel_now=target, progress=Progress(running=running))
    assert lines(sweep) == [line]
    assert lines(replace(sweep, draining="drained")) == []


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
def test_experiment_is_limited_by_a_lower_count_than_asked_for_but_not_if_throttled(auto, most, total, first):
    experiment = replace(OPEN, max_trials=total)
    assert is_limited(replace(PLAN, space=replace(SPACE, auto=auto, max_trials=most)), experiment) is first
