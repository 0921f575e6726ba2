"""How often an exporter is scraped, as its samples lie."""

import random
from itertools import accumulate

import pytest

from bot.measure.sources.prometheus import Row
from bot.measure.sources.scrape_interval import (
    STANDARD_INTERVALS,
    Exporters,
    ScrapeIntervals,
    scrape_interval,
)
from k8s.nodes.dcgm import ENGINE, UTIL
from tests.cases import cases


def scraped(*gaps: float) -> list[float]:
    return list(accumulate(gaps, initial=1_763_800_000.0))


@cases(
    ("gaps", "step"),
    [
        ([15.0] * 240, 15),
        ([60.0] * 60, 60),
        ([60.004, 59.99] * 30, 60),
        ([20.0] * 180, 20),
        ([25.0] * 144, 30),
        ([60.0] * 30 + [15.0] * 120, 60),  # sped up in the middle of the hour
        ([15.0] * 160 + [60.0] * 20, 60),
        ([15.0] * 40 + [2400.0] + [15.0] * 40, 15),  # away for 40 minutes
        (([15.0] * 7 + [30.0]) * 20, 15),  # every eighth is missed
        ([15.0, 30.0] * 80, 30),
        ([15.0, 15.0], 15),
        ([600.0] * 6, STANDARD_INTERVALS[-1]),
        ([], None),
    ],
)
def test_scrape_interval_is_the_slowest_usual_one(gaps: list[float], step: int | None) -> None:
    assert scrape_interval(scraped(*gaps)) == step


@pytest.mark.parametrize("offset", [1, 5, 10, 15])
def test_scrape_interval_of_two_scrapers_is_that_of_each(offset: int) -> None:
    one = [30.0 * number for number in range(20)]
    assert scrape_interval(one, [time + offset for time in one]) == 30


def test_scrape_interval_that_is_late_or_unknown_is_no_outage() -> None:
    dice = random.Random(1)  # noqa: S311
    assert scrape_interval(15 * number + dice.uniform(-2, 2) for number in range(240)) == 20
    assert all(1800 % rung == 0 for rung in STANDARD_INTERVALS)
    intervals = ScrapeIntervals({"GPU-1": 60, "GPU-2": 15}, 15)
    assert [intervals.of(device) for device in ("GPU-1", "GPU-1/3", "GPU-9", "")] == [60, 60, 15, 15]
    assert (intervals.steps, ScrapeIntervals({}, 30).steps) == ((15, 60), (30,))


def test_exporters_need_gpu_util_if_a_model_of_a_host_has_more_samples_of_it() -> None:
    def samples(**models: float) -> list[Row]:
        return [Row({"Hostname": "n1", "modelName": model}, number) for model, number in models.items()]

    both = Exporters.of(samples(A100=240), samples(A100=240, H100=240))
    assert (both.engine_only, both.metric, both.hosts) == (True, ENGINE, {("n1", "", "")})
    assert not Exporters.of(samples(A100=240, T1000=120), samples(A100=240)).engine_only
    assert not Exporters.of(samples(A100=240), samples(A100=200)).engine_only
    util = Exporters.of(samples(A10=240), [])
    assert (util.engine_only, util.metric) == (False, UTIL)
    assert Exporters.of([], []).engine_only
