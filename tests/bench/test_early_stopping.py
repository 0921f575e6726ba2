"""The simulation of early stopping: what it counts, and that the documents have its figures."""

import json
import re
from pathlib import Path

import pytest

from bench.early_stopping import CURVES, ORDERS, RULES, curves_of, played
from bench.table import RESULTS
from bot.core.stopping import StoppingRule

DOCUMENT = (Path(__file__).parents[2] / "bench/RESULTS.md").read_text()
RECORDED = [
    {"loss": [0.5, 0.1], "seconds": [1, 1]},
    {"loss": [0.6, 0.2], "seconds": [1, 1]},
    {"loss": [0.9, None], "seconds": [1, 3]},
]


def test_played_counts_the_hours_until_a_trial_ends_or_is_stopped():
    trials = curves_of(RECORDED)
    assert trials["trial-00"][-1].at == 2 * 120 / (8 / 6)
    full = played(trials, None, sorted(trials))
    assert (full.hours, full.best, full.stopped) == (pytest.approx(8 * 90 / 3600), 0.1, 0)
    ours = played(trials, StoppingRule(name="asha"), sorted(trials))
    # The first epoch ends after 90 s, and is read after 120 s.
    assert (ours.hours, ours.best, ours.stopped) == (pytest.approx((4 * 90 + 120) / 3600), 0.1, 1)


@pytest.mark.parametrize("file", sorted(CURVES.glob("*.json")), ids=lambda file: file.stem)
def test_recorded_curves_are_whole_and_stopping_saves_hours(file):
    recorded = json.loads(file.read_text())
    assert {(len(trial["loss"]), len(trial["seconds"])) for trial in recorded} == {(81, 81)}
    trials = curves_of(recorded)
    full, ours = (played(trials, rule, sorted(trials)) for rule in (None, RULES[0]))
    assert ours.hours < full.hours / 2
    assert ours.best >= full.best


def test_document_has_the_figures_of_the_last_run():
    rows = json.loads((RESULTS / "early_stopping.json").read_text())["rows"]
    assert len(rows) == 2 * len(RULES)
    for row in rows:
        hours, loss, found = re.search(
            r"^(\d+) vs .* best loss (\S+) .* kept in (\d+) of", row["measured"]
        ).groups()
        share = f"{hours} ({row['ratio']:.0%}) | {loss} | {found} |"
        assert share in DOCUMENT, row["what"]
    assert f"in {ORDERS} random orders" in DOCUMENT
