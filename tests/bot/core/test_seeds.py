"""Seeds as an option, and the statistics of their results."""

import random
from importlib import import_module

import pytest

from bot.core.errors import UserError
from bot.core.seeds import parse_seeds, seeds_option, statistics
from tests.cases import cases


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("5", (0, 1, 2, 3, 4)),
        ("1", (0,)),
        ("10", tuple(range(10))),
        ("3-3", (3,)),
        ("3-5", (3, 4, 5)),
        ("1,4,9-11", (1, 4, 9, 10, 11)),
        ("4, 4,1", (1, 4)),
        ("4294967295-4294967295", (2**32 - 1,)),
    ],
)
def test_parse_seeds_count_range_or_list_returns_seeds(text, seeds):
    assert parse_seeds(text, 10) == seeds
    assert parse_seeds(seeds_option(seeds), 10) == seeds


@cases(
    ("text", "message"),
    [
        ("", "must be a number of seeds, or a list of seeds such as 0-4,7"),
        ("0", "must be a number of seeds"),
        ("five", 'got "five"'),
        ("-1", "must be a number of seeds"),
        ("5-3", 'got "5-3"'),
        ("1,,2", "must be a number of seeds"),
        ("11", "at most 10 seeds on this cluster (limits.trials); got 11"),
        ("0-4000000000", "got 4000000001"),
        ("4294967296-4294967296", "at most 4294967295"),
        ("9" * 11, "must be a number of seeds"),
        ("1," * 1_001, "at most 2,000 characters"),
    ],
)
def test_parse_seeds_invalid_text_names_the_rule(text, message):
    with pytest.raises(UserError, match=r"seeds= ") as error:
        parse_seeds(text, 10)
    assert message in str(error.value)


@cases("count", [2, 3, 5, 10, 13, 14, 20, 50, 500])
def test_statistics_of_values_match_scipy(count):
    stats = import_module("scipy.stats")  # more than a second of CPU time in each process that collects tests
    values = [random.Random(n).gauss(3, 2) for n in range(count)]  # noqa: S311
    found = statistics(values)
    low, high = stats.t.interval(0.95, count - 1, loc=stats.tmean(values), scale=stats.sem(values))
    assert (found.count, found.mean) == (count, pytest.approx(stats.tmean(values)))
    assert found.deviation == pytest.approx(stats.tstd(values))
    assert found.interval == pytest.approx((low, high), rel=1e-3)


def test_statistics_of_one_value_has_no_deviation_and_none_of_nothing():
    assert statistics([]) is None
    assert (statistics([2.0]).mean, statistics([2.0]).deviation, statistics([2.0]).interval) == (
        2.0,
        None,
        None,
    )


@pytest.mark.parametrize("values", [[1.7e308, 1.7e308], [1.7e308, -1.7e308]])
def test_statistics_of_values_whose_sum_exceeds_a_float_are_none(values):
    assert statistics(values) is None
