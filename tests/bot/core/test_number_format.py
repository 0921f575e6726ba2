"""Numbers, and CSV tables that are safe in spreadsheets."""

import csv
from dataclasses import replace
from io import StringIO

import pytest

from bot.answers import messages
from bot.core.number_format import as_csv
from k8s.katib.status import Trial, TrialState
from tests.bot.factories import PLAN, a_sweep


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
        ("-2+3+cmd|' /C calc'!A0", "'-2+3+cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
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


def test_results_table_of_a_sweep_is_safe():
    name = PLAN.space.parameters[0].name
    done = TrialState.SUCCEEDED
    trial = Trial(name="lr-1", state=done, value=-0.123456, parameters={name: "-1+1"}, raw={})
    _, sheet = messages.results(a_sweep(), replace(PLAN.space, parameters=PLAN.space.parameters[:1]), [trial])
    assert list(csv.reader(StringIO(sheet)))[1] == ["lr-1", "done", "-0.123456", "'-1+1"]
