"""An hour of GPUs: each series by itself, and together those of a GPU with several."""

import math
from datetime import UTC, datetime

import pytest

from bot.measure.gpus.models import HALF_HOUR, HOUR
from bot.measure.sources import promql, promql_hour
from bot.measure.sources.hour_queries import MAX_NAMED, HourQueries
from bot.measure.sources.prometheus import Prometheus, Row
from bot.measure.sources.scrape_interval import ScrapeIntervals
from bot.measure.sources.series_kinds import NAMINGS
from k8s.nodes.dcgm import ENGINE

START = datetime(2026, 11, 20, 8, tzinfo=UTC)
MIDDLE, END = START + HALF_HOUR, START + HOUR
STEP = 30
EVERY = ScrapeIntervals({}, STEP)


def gpu(number, value, **labels):
    return Row({"UUID": f"GPU-{number}", "namespace": "sweeps", "pod": "lr-1"} | labels, value)


class Answering(Prometheus):
    """Answers by query and time; any other answer is empty."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    async def query(self, query, at):
        self.asked.append(query)
        return self.answers.get((query, at), [])

    async def at_both(self, query, first, second):
        assert (first, second) == (MIDDLE, END)
        both = {first.timestamp(), second.timestamp()}
        return [(row, dict.fromkeys(both, row.value)) for row in await self.query(query, second)]


def series(few, sums):
    """The answers about each series, of both halves alike."""
    functions = promql_hour.few_in_half, promql_hour.sum_of_half
    queries = [(each(STEP, engine_only=True), END) for each in functions]
    return dict(zip(queries, (few, sums), strict=True))


def hours(rows):
    return {row.gpu: pytest.approx(row.value) for row in rows}


async def test_gpu_with_one_series_is_summed_up_by_itself():
    free = {"UUID": "GPU-9", "namespace": "", "pod": ""}
    sums = [gpu(1, 45.0), gpu(2, 0.0), gpu(3, 0.0), Row(free, 0.1)]
    server = Answering(series([gpu(3, 40.0)], sums))
    found, known = await HourQueries(server).gpus(START, EVERY, engine_only=True)
    assert known == sums
    assert hours(found.observed) == {"GPU-1": 1, "GPU-2": 1, "GPU-3": 80 / 120}
    assert hours(found.used) == {"GPU-1": 0.75, "GPU-2": 0, "GPU-3": 0}
    assert hours(found.idle_late) == hours(found.idle_early) == {"GPU-2": 0.5}, "GPU-3 has too few samples"
    assert not any(query == promql.used_hours(STEP, NAMINGS[2:3], {"GPU-1"}) for query in server.asked)
    unclear = promql_hour.idle_in_half(STEP, {"GPU-1"}, engine_only=True)[:40]
    assert not any(query.startswith(unclear) for query in server.asked), "the sums show which are idle"


async def test_gpu_with_little_use_is_idle_unless_a_sample_shows_that_it_was_busy():
    sums = [gpu(1, 0.3), gpu(2, 0.3), gpu(3, 30.0)]
    unclear = promql_hour.idle_in_half(STEP, {"GPU-1", "GPU-2"}, engine_only=True)
    server = Answering(series([], sums) | {(unclear, END): [gpu(2, 0.005, __name__=ENGINE)]})
    found, _ = await HourQueries(server).gpus(START, EVERY, engine_only=True)
    assert hours(found.idle_late) == hours(found.idle_early) == {"GPU-2": 0.5}


async def test_gpu_with_several_series_or_nan_is_queried_together():
    sums = [gpu(1, 60.0), gpu(2, 60.0, instance="a"), gpu(2, 60.0, instance="b"), gpu(3, math.nan)]
    which = {"GPU-2", "GPU-3"}
    server = Answering(
        series([], sums)
        | {
            (promql.observed_hours(STEP, NAMINGS[2:3], which), END): [gpu(2, 1.0), gpu(3, 0.9)],
            (promql.used_hours(STEP, NAMINGS[2:3], which), END): [gpu(2, 0.8), gpu(3, 0.7)],
        }
    )
    found, _ = await HourQueries(server).gpus(START, EVERY, engine_only=True)
    assert hours(found.observed) == {"GPU-1": 1, "GPU-2": 1, "GPU-3": 0.9}
    assert hours(found.used) == {"GPU-1": 1, "GPU-2": 0.8, "GPU-3": 0.7}


@pytest.mark.parametrize(("number", "named"), [(1, True), (MAX_NAMED + 1, False)])
async def test_pods_with_several_requests_are_queried_together(number, named):
    pods = [Row({"namespace": "sweeps", "pod": f"lr-{n}"}, 2.0) for n in range(number)]
    exact = promql.allocated_hours(promql_hour.these(pods) if named else "")
    other = Row({"namespace": "sweeps", "pod": "other"}, 1.0)
    server = Answering(
        {
            (promql_hour.SEVERAL_REQUESTS, END): pods,
            (promql_hour.ALLOCATED_HOURS, END): [*pods, other],
            (exact, END): [Row(row.labels, 1.5) for row in (*pods, other)],
        }
    )
    found = await HourQueries(server).allocated(END)
    assert {row.pod[1]: row.value for row in found} == {"other": 1.0} | {row.pod[1]: 1.5 for row in pods}


async def test_cpu_of_pods_without_gpus_is_not_asked_again():
    rows = [
        Row({"namespace": "sweeps", "pod": pod, "container": c}, 1.0) for pod in ("lr-1", "web") for c in "ab"
    ]
    found = {"namespace": "sweeps", "pod": "lr-1"}
    server = Answering(
        {
            (promql_hour.cpu_mean({"sweeps"}), END): rows,
            (promql.cpu_mean(promql_hour.these([Row(found, 0.0)])), END): [Row(found, 1.5)],
        }
    )
    assert await HourQueries(server).cpu_mean(END, {("sweeps", "lr-1")}) == {("sweeps", "lr-1"): 1.5}
