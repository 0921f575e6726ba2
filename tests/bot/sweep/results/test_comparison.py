"""The comparison of ended sweeps: message and picture."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from bot.core.curves import Point
from bot.core.space import Parameter
from bot.platform.repos.git import Between, CommitList
from bot.sweep.charts.comparison import alt_text, best_so_far, picture, png
from bot.sweep.charts.palette import STYLES
from bot.sweep.model.texts import linked
from bot.sweep.results.comparison import Commits, comparable, comparison
from k8s.engine import TrialState
from local.slack.validation import complaints
from tests.bot.factories import NOW, SPACE
from tests.bot.sweep.model.observations import PENDING
from tests.bot.sweep.results.factories import a_result, some_results


def ended(name, *values, **facts):
    trials = [
        a_result(f"t{n}", value=value, ended=NOW + timedelta(minutes=n), gpu_hours=0.5, cost=1.0)
        for n, value in enumerate(values)
    ]
    return some_results(*trials, **{"sweep": name} | facts)


OLD = ended("lr-old-otter", 0.5, 0.4, 0.45)
WIDER = replace(SPACE, max_trials=2, parameters=(Parameter(name="lr", min=1e-5, max=0.1, log=True),))
NEW = ended("lr-new-otter", 0.3, None, commit="cd" * 20, subject="Use <b>cosine</b>", space=WIDER)
KNOWN = replace(PENDING, id="lr-old-otter", permalink="https://slack/1")
ADDED = CommitList(17, (("cdcdcdcd", "Use <b>cosine</b> `x`"), ("abababab", "Fix a typo")))
BETWEEN = Commits(Between(ADDED, CommitList(0, ())))


def test_comparison_lists_best_cost_commits_and_changed_parameters():
    message = comparison([OLD, NEW], [BETWEEN], partial(linked, sweeps=[KNOWN]))
    assert (
        "*<https://slack/1|lr-old-otter>*: best `val_loss` *0.4* · 3 trials · 1.5 GPU-h · $3.00 · `lr` on "
        "`main`"
    ) in message.text
    assert "Best: `lr-new-otter`, 0.3 (minimize `val_loss`)." in message.text
    assert "`01234567` to `cdcdcdcd`, 17 commits.\n• `cdcdcdcd` Use &lt;b&gt;cosine" in message.text
    assert "15 more" in message.text
    assert "• `lr`: `0.0001 to 0.1, log` → `1e-05 to 0.1, log`" in message.text
    assert "• `optimizer`: `adam, sgd` → `none`" in message.text
    assert complaints(list(message.blocks)) == []
    message = comparison([OLD, replace(OLD, sweep="lr-other-otter")], [Commits()], str)
    assert "the same commit `01234567`" in message.text
    assert "*Space*: the same." in message.text
    assert "Best: `lr-old-otter` and `lr-other-otter`, 0.4" in message.text
    trials = (*OLD.trials, a_result("t9", value=None, state=TrialState.FAILED))
    assert "at least 1.5 GPU-h" in comparison([replace(OLD, trials=trials), OLD], [Commits()], str).text
    unpriced = (*OLD.trials, a_result("t9", value=None, gpu_hours=0.5))
    message = comparison([replace(OLD, trials=unpriced), OLD], [Commits()], str)
    assert "4 trials · 2 GPU-h · at least $3.00" in message.text
    other = replace(NEW, space=replace(SPACE, metric="accuracy"))
    assert not comparable([OLD, other])
    message = comparison([OLD, other], [Commits(error="git.example didn't respond")], str)
    assert "The objectives differ" in message.text
    assert "Best: " not in message.text
    assert "can't be listed: git.example didn't respond" in message.text


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (
            {"values": (*"abcdefgh", "x")},
            {"values": (*"abcdefgh", "y")},
            "`a, b, c, d, e, f, g, h, x` → `a, ",
        ),
        ({"min": 1, "max": 1_000_001}, {"min": 1, "max": 1_000_002}, "`1 to 1000001` → `1 to 1000002`"),
        ({"values": ("z" * 200, "x")}, {"values": ("z" * 200,)}, f"`…{'z' * 40}, x` → `…{'z' * 40}`"),
    ],
)
def test_a_late_difference_of_a_parameter_is_shown(old, new, shown):
    both = [
        ended(name, 0.5, space=replace(SPACE, parameters=(Parameter(name="a", **each),)))
        for name, each in {"lr-old-otter": old, "lr-new-otter": new}.items()
    ]
    assert shown in comparison(both, [Commits()], str).text


def test_a_parameter_can_be_named_like_a_key_of_the_space():
    space = replace(SPACE, parameters=(Parameter(name="algorithm", values=("ppo", "dqn")),))
    both = [
        ended("lr-old-otter", 0.5, space=space),
        ended(
            "lr-new-otter", 0.5, space=replace(space, algorithm="tpe", fixed={"objective": "reg:logistic"})
        ),
    ]
    text = comparison(both, [Commits()], str).text
    assert "• `algorithm`: `random` → `tpe`\n• `params.objective`: `none` → `reg:logistic`" in text


def test_picture_shows_the_best_so_far_of_each_sweep():
    assert best_so_far(OLD) == [0.5, 0.4, 0.4]
    assert best_so_far(ended("x")) == []
    axes = picture([OLD, NEW, ended("lr-none-otter")]).axes[0]
    assert [line.get_label() for line in axes.lines if "otter" in line.get_label()] == [
        "lr-old-otter  0.4",
        "lr-new-otter  0.3",
        "lr-none-otter  no result",
    ]
    assert alt_text([OLD, NEW]) == (
        "Best val_loss so far by trial. At the end: "
        "lr-old-otter 0.4 after 3 trials; lr-new-otter 0.3 after 1 trial."
    )


def test_picture_has_the_stored_learning_curve_of_each_best_trial():
    best = OLD.best or OLD.trials[1].name
    curve = tuple(Point(step, 1 / (step + 1)) for step in range(5))
    learned = replace(OLD, best=best, curves={best: curve, "other": curve[:1]})
    _, below = picture([NEW, learned]).axes
    [line] = below.lines
    assert [*line.get_ydata()] == [point.value for point in curve]
    assert line.get_color() == STYLES[1][0]  # as above
    assert alt_text([NEW, learned]).endswith("Below, the learning curve of each sweep's best trial.")
    assert len(picture([NEW, OLD]).axes) == 1


@pytest.mark.parametrize("values", [(1e308,), (1.7e308, -1.7e308), (5e-324, 1e308)])
async def test_picture_accepts_any_finite_value(values):
    assert (await png([OLD, ended("lr-huge-otter", *values)])).startswith(b"\x89PNG")
