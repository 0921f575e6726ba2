"""The short form of a record: what commands without a sweep's name choose by."""

from dataclasses import replace

import pytest

from bot.core.record import Phase
from bot.core.sweep_summary import SweepSummary, dump, load, summary_of
from tests.bot.factories import PLAN, a_sweep


@pytest.mark.parametrize(
    ("changes", "gated", "queued"),
    [
        ({"plan": None}, False, False),
        ({"plan": PLAN}, False, False),
        ({"plan": PLAN, "first_only": True}, True, False),
        ({"plan": replace(PLAN, queue="research")}, False, True),
    ],
)
def test_summary_says_whether_the_sweep_is_gated_or_queued(changes, gated, queued):
    [entry] = load([dump(summary_of(replace(a_sweep(Phase.RUNNING), **changes)))])
    assert (entry.first_only, entry.queued) == (gated, queued)


def test_summary_of_an_older_version_is_neither_gated_nor_queued():
    [entry] = load(['{"id": "lr-a-b", "user": "U1", "channel": "C1", "phase": "running"}'])
    assert entry == SweepSummary(id="lr-a-b", user="U1", channel="C1", phase=Phase.RUNNING)
    assert (entry.first_only, entry.queued) == (False, False)


def test_summary_of_a_worker_before_schema_2_is_read():
    stored = '{"id":"lr-a-b","user":"U1","channel":"C1","phase":"proving","gang":true,"gated":true}'
    [entry] = load([stored])
    assert (entry.starts_together, entry.first_only) == (True, True)
