"""A running sweep's message about its running trials and the time left."""

import math
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from bot.core.curves import MAX_FAILURES, LiveReading, Point
from bot.core.events import LiveResult
from bot.core.record import Phase
from bot.core.space import Goal
from bot.sweep.decisions.parent_message import Links, parent
from bot.sweep.features.live_values import follow, lines, observe
from bot.sweep.model.observation import Observation
from bot.sweep.results.live import PERIOD, SOON
from bot.text.wording import time_text
from k8s.engine import TrialState
from k8s.jobs import JobState
from tests.bot.factories import PLAN
from tests.bot.sweep.model.observations import LATER, OPEN, RUNNING, a_job, a_pod, a_trial, after, kinds

TWO = (a_trial("a"), a_trial("b"))
PODS = tuple(a_pod(name, running_since=LATER - timedelta(minutes=10)) for name in "ab")
SEEN = {"experiment": OPEN, "trials": TWO, "pods": PODS}


def reading(**values):
    return LiveReading(latest={name: Point(7, value) for name, value in values.items()})


def done(name, seconds):
    return {
        "trials": (a_trial(name, TrialState.SUCCEEDED, 0.5),),
        "jobs": (a_job(name, JobState.COMPLETE, seconds=seconds),),
    }


@pytest.mark.parametrize(("known", "again"), [({}, SOON), ({"old": 0.1}, SOON), ({"new": 0.1}, PERIOD)])
async def test_trial_without_a_value_is_looked_at_again_soon_while_it_is_new(known, again):
    async def read(sweep, _, wanted, query, **_mlflow):
        assert (sweep, wanted({"new": Point(1, 0.1)})) == (RUNNING.id, set())
        queries.append(query)
        return reading(**known)

    queries = []
    clients = SimpleNamespace(now=lambda: LATER, trials="cluster", live=SimpleNamespace(read=read))
    spec = PLAN.experiment["spec"] | {"metricsCollectorSpec": {"collector": {"kind": "Push"}}}
    sweep = replace(RUNNING, plan=replace(PLAN, experiment=PLAN.experiment | {"spec": spec}))
    pods = tuple(
        a_pod(name, running_since=LATER - timedelta(seconds=age))
        for name, age in (("new", 899), ("old", 900))
    )
    seen = Observation(trials=(a_trial("new"), a_trial("old")), pods=(*pods, a_pod("gone")))
    found = await observe(sweep, seen, clients)
    assert (found.reading, found.observe_again_in) == (reading(**known), again)
    assert (queries[0].cluster, queries[0].new) == ("cluster", {"new"})
    assert (await observe(RUNNING, seen, clients)).observe_again_in == PERIOD
    assert queries[1:] == [None]  # MLflow is read
    sooner = seen.again_in(timedelta(seconds=1))
    assert (await observe(sweep, sooner, clients)).observe_again_in == timedelta(seconds=1)
    for idle in (replace(sweep, plan=None), replace(sweep, phase=Phase.PENDING)):
        assert await observe(idle, seen, clients) is seen
    assert await observe(sweep, replace(seen, pods=()), clients) == replace(seen, pods=())


@pytest.mark.parametrize(
    ("values", "goal", "best"),
    [
        ({"a": 0.4, "b": 0.3}, Goal.MINIMIZE, ("b", 0.3)),
        ({"a": 0.4, "b": 0.3}, Goal.MAXIMIZE, ("a", 0.4)),
        ({"a": 0.4, "b": math.nan, "gone": 0.1}, Goal.MINIMIZE, ("a", 0.4)),
        ({"a": math.inf}, Goal.MAXIMIZE, None),
        ({}, Goal.MINIMIZE, None),
    ],
)
def test_best_running_trial_is_shown_while_it_runs(values, goal, best):
    plan = replace(PLAN, space=replace(PLAN.space, goal=goal))
    sweep = after(replace(RUNNING, plan=plan), **SEEN, reading=reading(**values))
    assert sweep.progress.live == (best and LiveResult(trial=best[0], value=best[1], step=7))


def test_message_has_the_best_running_trial_and_the_time_left_once_submitted():
    seen = done("c", 1800.0)
    facts = {"trials": (*TWO, *seen["trials"]), "jobs": seen["jobs"]}
    sweep = after(RUNNING, **SEEN | facts, reading=reading(a=0.25))
    text = parent(sweep, Links()).blocks[0]["text"]["text"]
    assert "Best running trial: `val_loss` *0.25* at step 7 (`a`)\nUp to 35 min left" in text
    ended = parent(replace(sweep, phase=Phase.SUCCEEDED), Links()).blocks[0]["text"]["text"]
    assert "running trial" not in ended
    assert "left" not in ended
    soon = replace(sweep, progress=replace(sweep.progress, live=None, minutes_left=5))
    assert lines(soon) == ["Less than 5 min left"]
    waiting = replace(RUNNING, submitted=False)
    assert follow(waiting, Observation(**SEEN, reading=reading(a=0.25)), LATER) == waiting


def test_unreachable_mlflow_is_reported_once_and_no_old_value_shown():
    away = replace(reading(a=0.25), failures=MAX_FAILURES)
    once = after(RUNNING, **SEEN, reading=away)
    assert kinds(once) == ["no_live_values"]
    assert once.outbox[0].text.startswith(":warning: MLflow isn't responding")
    assert once.progress.live is None
    back = after(after(replace(once, outbox=()), **SEEN, reading=reading(a=0.2)), **SEEN, reading=away)
    assert kinds(back) == []
    slow = replace(reading(a=0.25), failures=MAX_FAILURES - 1)
    assert kinds(after(RUNNING, **SEEN, reading=slow)) == []


@pytest.mark.parametrize(
    ("changes", "minutes"),
    [
        ({}, 35),  # one more trial of 30 minutes, and twice 20 minutes, on two places
        ({"draining": "drained"}, 20),
        ({"plan": replace(PLAN, space=replace(PLAN.space, max_trials=3))}, 20),  # no more start
        ({"holds": ("pause",)}, 20),
        ({"plan": replace(PLAN, space=replace(PLAN.space, max_trials=8))}, 105),  # 95, in steps of 15
        (
            {
                "deadline": LATER + timedelta(minutes=1),
                "plan": replace(PLAN, space=replace(PLAN.space, max_trials=40)),
            },
            35,
        ),
        ({"plan": replace(PLAN, space=replace(PLAN.space, max_trials=40))}, 600),
        ({"plan": replace(PLAN, space=replace(PLAN.space, max_trials=203))}, 52 * 60),  # in steps of 4 hours
    ],
)
def test_time_left_follows_from_finished_trials(changes, minutes):
    seen = done("c", 1800.0)
    facts = {"trials": (*TWO, *seen["trials"]), "jobs": seen["jobs"]}
    assert after(replace(RUNNING, **changes), **SEEN | facts).progress.minutes_left == minutes


def test_time_left_is_unknown_or_the_smallest_step_and_without_waits():
    assert after(RUNNING, **SEEN).progress.minutes_left is None
    alone = done("c", 1800.0)
    assert after(RUNNING, experiment=OPEN, **alone).progress.minutes_left is None
    seen = done("c", 300.0)
    facts = {"trials": (*TWO, *seen["trials"]), "jobs": seen["jobs"]}
    assert after(replace(RUNNING, draining="drained"), **SEEN | facts).progress.minutes_left == 5
    seen = done("c", 7200.0)
    pods = (*PODS, a_pod("c", finished=True, seconds=1800.0))
    facts = {"trials": (*TWO, *seen["trials"]), "jobs": seen["jobs"], "pods": pods}
    assert after(RUNNING, **SEEN | facts).progress.minutes_left == 35
    others = {"trials": (*TWO, *seen["trials"]), "jobs": seen["jobs"], "pods": pods}
    uncounted = {
        "trials": (*others["trials"], a_trial("d")),
        "pods": (*pods, a_pod("d", finished=True, exit=(0, "", ""))),
    }
    assert after(RUNNING, **SEEN | others | uncounted).progress.minutes_left == 20, "no more start"
    shorter = done("d", 600.0)
    mean = {key: value + shorter.get(key, ()) for key, value in others.items()}
    assert after(replace(RUNNING, draining="drained"), **SEEN | mean).progress.minutes_left == 10


@pytest.mark.parametrize(("minutes", "text"), [(5, "5 min"), (60, "1 h"), (75, "1 h 15 min"), (600, "10 h")])
def test_times_are_in_hours_and_minutes(minutes, text):
    assert time_text(minutes) == text
