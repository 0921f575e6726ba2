"""Numbers, and CSV tables that are safe in spreadsheets."""

import csv
from dataclasses import replace
from io import StringIO

from bot.sweep.results.csv_file import csv_text
from bot.text.number_format import as_csv, hours, money
from tests.bot.factories import SPACE
from tests.bot.sweep.results.factories import a_result, some_results
from tests.cases import cases


@cases(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
        ("-2+3+cmd|' /C calc'!A0", "'-2+3+cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t'=1"),
        ("Ada;=1+1;-2", "Ada;'=1+1;'-2"),
        (None, ""),
        ("\r=1", "'\r=1"),
        ("-0.25", "-0.25"),
        ("-1e-05", "-1e-05"),
        ("adam", "adam"),
        (-3, "-3"),
        (-1.23456, "-1.235"),
    ],
)
def test_as_csv_writes_no_formulas_and_keeps_numbers(value, cell):
    assert next(csv.reader(StringIO(as_csv([[value]]), newline=""))) == [cell]


@cases(
    ("value", "text"),
    [
        *((0, "0"), (1e-9, "0.0001"), (0.0028, "0.003"), (0.0499, "0.05"), (0.05, "0.1"), (0.5, "0.5")),
        *((2.04, "2"), (74, "74"), (1203.4, "1,203")),
    ],
)
def test_hours_are_zero_only_without_any(value, text):
    assert hours(value) == text


@cases(
    ("value", "text"),
    [
        (0, "$0.00"),
        (1e-9, "$0.0001"),
        (0.0028, "$0.003"),
        (0.0049, "$0.005"),
        (0.005, "$0.01"),
        (7.5, "$7.50"),
    ],
)
def test_money_is_zero_only_without_any(value, text):
    assert money(value, "$") == text


def test_results_table_of_a_sweep_is_safe():
    space = replace(SPACE, parameters=SPACE.parameters[:1])
    trial = a_result("1", -0.123456, parameters={space.parameters[0].name: "-1+1"})
    [_, row] = csv.reader(StringIO(csv_text(some_results(trial, space=space))))
    assert row[:4] == ["lr-brave-otter-1", "done", "-0.123456", "'-1+1"]
