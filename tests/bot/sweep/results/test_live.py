"""Live values: one reading per sweep and period, and no reconcile waits for it."""

import math
import threading
import time
from dataclasses import replace

import pytest

from bot.core.curves import MAX_FAILURES, LiveReading, Point
from bot.core.record import Phase
from bot.core.stopping import ASHA, StoppingRule
from bot.sweep.results import live
from bot.sweep.results.live import LiveValues
from bot.sweep.results.log_curves import LogCurve, LogQuery, LogSource
from bot.sweep.results.tracking_api import Run, TrackingError
from tests.bot.factories import PLAN, a_sweep

RULE = StoppingRule(name=ASHA, grace=2, factor=2)
SWEEP = a_sweep(Phase.RUNNING, plan=replace(PLAN, space=replace(PLAN.space, stopping=RULE)))
POINTS = (Point(1, math.nan, 1.0), Point(2, math.nan, 2.0), Point(3, 0.5, 3.0), Point(5, 0.7, 5.0))


class Tracking:
    """An MLflow with one trial: its requests, and whether it may respond."""

    def __init__(self):
        self.asked, self.away, self.may_answer = [], False, threading.Event()
        self.may_answer.set()
        self.trial = "t"

    def runs(self, experiment, metric, url="", since=0.0):
        self.asked.append((experiment, metric, url, since))
        self.may_answer.wait(60)
        if self.away:
            raise TrackingError("away")
        names = frozenset({"val_loss", "accuracy"})
        return {
            self.trial: Run(id="r", trial=self.trial, parent="", started=1, latest=POINTS[-1], names=names)
        }

    def curves(self, runs, metric, *, most=0):
        return dict.fromkeys(runs.values(), POINTS)


class Logs:
    """Logs that have one report more each time they are read."""

    async def read(self, before, query):
        old = before.get("t", LogCurve(pod="p"))
        point = Point(old.reports + 1, 1 / (old.reports + 1))
        points = (*old.points, point)
        return {"t": replace(old, reports=old.reports + 1, latest=point, points=points)}


@pytest.fixture
def tracking():
    tracking = Tracking()
    yield tracking
    tracking.may_answer.set()


@pytest.fixture
def woken():
    return []


@pytest.fixture
async def values(redis, tracking, woken):
    async def wake(sweep_id):
        woken.append(sweep_id)

    return LiveValues(redis, tracking, Logs(), wake)


async def read(values, wanted=frozenset()):
    return await values.read(SWEEP.id, SWEEP.plan, lambda _: set(wanted))


async def due(redis):
    """Advance the clock by one period."""
    await redis.delete(f"sweepbot:live-due:{SWEEP.id}")


async def test_live_values_are_the_last_reading_and_a_new_one_wakes_the_sweep(
    values, tracking, woken, wait_until
):
    tracking.may_answer.clear()
    assert await read(values, {"t"}) == LiveReading()
    tracking.may_answer.set()
    await wait_until(lambda: woken, "the sweep is woken")
    reading = await read(values)
    assert reading.latest["t"] == Point(5, 0.7, 5.0)
    assert 0 < reading.at <= time.time()
    at_two, at_four = reading.curves["t"]  # the rungs up to 5; a value at the second, and the least so far
    assert (at_two.step, math.isnan(at_two.value), at_four) == (2, True, Point(5, 0.5, 5.0))
    assert tracking.asked == [(SWEEP.plan.results_name, "val_loss", "", 0.0)]


async def test_live_values_are_read_once_per_period_by_all_workers(
    redis, tracking, woken, values, wait_until
):
    others = [LiveValues(redis, tracking, Logs(), values._wake) for _ in range(3)]
    for each in [values, *others] * 3:
        await read(each)
    await wait_until(lambda: woken, "the sweep is woken")
    assert len(tracking.asked) == 1
    assert await redis.pttl(f"sweepbot:live-due:{SWEEP.id}") <= live.PERIOD.total_seconds() * 1000


async def test_trials_that_had_ended_by_the_last_reading_are_not_read_again(
    redis, values, tracking, wait_until, monkeypatch
):
    async def next_reading(since):
        await due(redis)
        await values.read(SWEEP.id, SWEEP.plan, set, url="http://ui", since=since)
        await wait_until(lambda: not values._tasks, "it is read")

    await next_reading(since=70.0)
    monkeypatch.setattr(tracking, "trial", "u")
    await next_reading(since=80.0)
    tracking.away = True
    await next_reading(since=85.0)
    tracking.away = False
    monkeypatch.setattr(live, "MAX_WANTED", 1)
    monkeypatch.setattr(tracking, "trial", "t")
    await next_reading(since=90.0)
    await next_reading(since=95.0)
    url = (SWEEP.plan.results_name, "val_loss", "http://ui")
    assert tracking.asked == [(*url, since) for since in (0.0, 70.0, 80.0, 80.0, 80.0)]
    assert (await read(values)).latest == {"t": POINTS[-1], "u": POINTS[-1]}


async def test_live_values_without_a_change_wake_no_sweep(redis, values, tracking, woken, wait_until):
    for number in range(1, 4):
        await due(redis)
        await read(values)
        await wait_until(lambda n=number: len(tracking.asked) == n and not values._tasks, "it is read")
    assert woken == [SWEEP.id]


async def test_live_values_of_an_unreachable_mlflow_wake_once_and_stay(
    redis, values, tracking, woken, wait_until
):
    await read(values)
    await wait_until(lambda: woken, "the sweep is woken")
    tracking.away = True
    for number in range(2, MAX_FAILURES + 4):
        await due(redis)
        await read(values)
        await wait_until(lambda n=number: len(tracking.asked) == n and not values._tasks, "it has failed")
    reading = await read(values)
    assert (woken, reading.failures) == ([SWEEP.id] * 2, MAX_FAILURES + 2)
    assert reading.is_away
    assert reading.latest["t"].step == 5


async def test_hanging_mlflow_blocks_only_its_own_threads(redis, values, tracking, monkeypatch):
    monkeypatch.setattr(live, "MAX_READINGS", 5)
    tracking.may_answer.clear()
    for number in range(20):
        assert await values.read(f"lr-{number}", SWEEP.plan, lambda _: set()) == LiveReading()
    assert len(values._tasks) == 5


async def test_curves_that_take_too_long_are_an_error(values, tracking, monkeypatch):
    monkeypatch.setattr(live, "ON_DEMAND_TIMEOUT", 0.01)
    tracking.may_answer.clear()
    with pytest.raises(TrackingError, match="no answer within"):
        await values.curves(SWEEP.plan, "val_loss", 300)


async def test_curves_on_demand_are_of_all_trials_and_name_what_else_is_logged(values, tracking):
    curves, names = await values.curves(SWEEP.plan, "accuracy", 300)
    assert (set(curves), names, tracking.asked[0][1]) == ({"t"}, {"val_loss", "accuracy"}, "accuracy")


async def test_live_values_expire_in_redis(redis, values, woken, wait_until, no_litter):
    await read(values)
    await wait_until(lambda: woken, "the sweep is woken")


async def test_read_with_a_log_query_reads_on_in_the_logs_and_not_mlflow(
    redis, values, tracking, woken, wait_until
):
    query = LogQuery(pattern="(loss)=(1)", strategy="min", rungs=frozenset())
    for number in range(1, 4):
        await due(redis)
        await values.read(SWEEP.id, SWEEP.plan, set, query)
        await wait_until(lambda n=number: len(woken) == n and not values._tasks, "the logs are read")
    reading = await values.read(SWEEP.id, SWEEP.plan, lambda _: set(), query)
    assert [point.step for point in reading.curves["t"]] == [1, 2, 3]
    assert (reading.latest["t"].value, tracking.asked) == (1 / 3, [])


async def test_logs_of_few_new_trials_without_a_value_are_read_sooner(redis, values, woken, wait_until):
    """Once a period, all logs are read, and every SOON those of up to MAX_SOON trials that started lately."""
    read = []

    class Silent:
        async def read(self, before, query):
            read.append([source.trial for source in query.sources])
            return dict(before) | {"t0": LogCurve(pod="p", latest=Point(1, 0.5))}

    values._logs = Silent()
    names = [f"t{number}" for number in range(9)]
    sources = [LogSource(trial=name, namespace="s", pod=name, finished=False) for name in names]
    query = LogQuery(strategy="min", rungs=frozenset(), sources=sources, new=frozenset(names[:8]))
    first = 0.0
    for number in range(1, 4):
        await values.read(SWEEP.id, SWEEP.plan, lambda _: set(), query)
        await wait_until(lambda n=number: len(read) == n and not values._tasks, "logs are read")
        await values.read(SWEEP.id, SWEEP.plan, lambda _: set(), query)
        assert not values._tasks, "not twice within SOON"
        assert 0 < await redis.pttl(f"sweepbot:live-soon:{SWEEP.id}") <= live.SOON.total_seconds() * 1000
        first = first or (await values.read(SWEEP.id, SWEEP.plan, lambda _: set())).at
        await redis.delete(f"sweepbot:live-soon:{SWEEP.id}")
    assert read == [names, names[1:6], names[1:6]]
    stored = await values.read(SWEEP.id, SWEEP.plan, lambda _: set(), replace(query, new=frozenset()))
    assert stored.at == first, "of the reading of all, with which trials are compared"
    assert woken == [SWEEP.id]
    await values.read(SWEEP.id, SWEEP.plan, lambda _: set(), replace(query, new=frozenset({"t0"})))
    assert not values._tasks, "all new trials have values"


async def test_logs_are_parsed_outside_the_event_loop_and_written_if_they_changed(
    redis, values, woken, wait_until, monkeypatch
):
    threads, written = set(), []
    parsed, changed = live._parsed_logs, live._changed_logs

    def parse(stored):
        threads.add(threading.current_thread())
        return parsed(stored)

    def compare(read, stored):
        threads.add(threading.current_thread())
        written.append(sorted(changed(read, stored)))
        return changed(read, stored)

    monkeypatch.setattr(live, "_parsed_logs", parse)
    monkeypatch.setattr(live, "_changed_logs", compare)
    await redis.hset(f"sweepbot:live-log:{SWEEP.id}", "old", live._LOG.dump_json(LogCurve(pod="old")))
    query = LogQuery(pattern="(loss)=(1)", strategy="min", rungs=frozenset())
    for number in (1, 2):
        await due(redis)
        await values.read(SWEEP.id, SWEEP.plan, set, query)
        await wait_until(lambda n=number: len(woken) == n and not values._tasks, "the logs are read")
    assert written == [["t"], ["t"]]
    assert threading.main_thread() not in threads
