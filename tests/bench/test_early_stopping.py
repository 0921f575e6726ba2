"""The simulation of early stopping: what it counts, and that the documents have its figures."""

import json
import re
from pathlib import Path

import pytest

from bench.early_stopping import CURVES, ORDERS, PRUNERS, RULES, by_pruner, by_rule, curves_of, played
from bench.table import RESULTS
from bot.core.stopping import StoppingRule

DOCUMENT = (Path(__file__).parents[2] / "bench/RESULTS.md").read_text()
RECORDED = [
    {"seconds": 1, "loss": [0.5, 0.1]},
    {"seconds": 1, "loss": [0.6, 0.2]},
    {"seconds": 2, "loss": [0.9, None]},
]


def test_played_counts_the_hours_until_a_trial_ends_or_is_stopped():
    trials = curves_of(RECORDED)
    assert [curve[-1].at for curve in trials.values()] == [180, 180, 360]
    full = played(trials, lambda *_: set(), sorted(trials))
    assert (full.hours, full.best, full.stopped) == (pytest.approx(720 / 3600), 0.1, 0)
    ours = played(trials, by_rule(StoppingRule(name="asha"), trials), sorted(trials))
    # The third trial's first epoch ends after 180 s, and is read then.
    assert (ours.hours, ours.best, ours.stopped) == (pytest.approx((3 * 180) / 3600), 0.1, 1)


@pytest.mark.parametrize("file", sorted(CURVES.glob("*.json")), ids=lambda file: file.stem)
def test_recorded_curves_are_whole_and_stopping_saves_hours(file):
    recorded = json.loads(file.read_text())
    assert {len(trial["loss"]) for trial in recorded} == {81}
    trials = curves_of(recorded[::3])
    full = sum(curve[-1].at for curve in trials.values()) / 3600
    for decide in (by_rule(RULES[0], trials), *(by_pruner(pruner(), trials) for pruner in PRUNERS)):
        assert 0 < played(trials, decide, sorted(trials)).hours < full


def test_document_has_the_figures_of_the_last_run():
    rows = json.loads((RESULTS / "early_stopping.json").read_text())["rows"]
    assert len(rows) == len(list(CURVES.glob("*.json"))) * (len(RULES) + len(PRUNERS))
    for row in rows:
        found = re.search(r"kept in (\d+) of", row["measured"]).group(1)
        assert f"{row['ratio']:.0%}, {found}" in DOCUMENT, row["what"]
    assert f"{ORDERS} random orders" in DOCUMENT
