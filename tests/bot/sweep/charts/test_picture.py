"""The picture of a sweep's results: drawn for any value and any name, with the facts as text."""

from dataclasses import replace
from datetime import timedelta
from io import BytesIO

import pytest
from PIL import Image

from bot.core.curves import Point
from bot.core.space import Goal, Parameter
from bot.sweep.charts.axes import POINTS_MAX, Scale, _tick, objective_range, shown
from bot.sweep.charts.picture import MAX_ALT, Content, _figure, alt_text, png
from k8s.engine import TrialState
from tests.bot.factories import NOW, SPACE
from tests.bot.sweep.charts.test_importances import known
from tests.bot.sweep.results.factories import SWEEP, a_result, some_results

WIDTH = Parameter(name="width", min=1, max=512, integer=True)
LONG = "a_parameter_" * 17


def spread(values, parameters=SPACE.parameters, given=None, **facts):
    trials = [
        a_result(f"t{n}", value, started=NOW + timedelta(minutes=n), parameters=given(n) if given else {})
        for n, value in enumerate(values)
    ]
    space = replace(SPACE, parameters=parameters, max_trials=len(trials), **facts)
    return some_results(*trials, space=space)


def drawn(results):
    return Image.open(BytesIO(png(Content(results))))


def numbers(n):
    return {"lr": repr(10.0 ** -(n % 4)), "layers": str(n % 4 + 1), "optimizer": "adam" if n % 2 else "sgd"}


def height(results):
    return _figure(Content(results)).get_figheight()


def test_picture_has_a_panel_for_each_view():
    few = spread([0.3, 0.2, 0.4])
    opaque = drawn(few).convert("RGBA")  # readable on dark
    assert (opaque.getchannel("A").getextrema(), opaque.getpixel((0, 0))) == ((255, 255), (255,) * 4)
    with_importances = Content(known(60))
    picture = Image.open(BytesIO(png(with_importances)))
    assert opaque.width == picture.width == 1200
    assert opaque.height < picture.height
    assert height(few) < height(spread([0.3, 0.2, 0.4, 0.1], given=numbers))
    assert height(few) < _figure(with_importances).get_figheight()
    assert "Importance by PED-ANOVA: lr " in alt_text(with_importances)


def test_picture_has_the_curves_of_the_best_trials_with_their_objectives():
    results = spread([0.3, 0.2], given=numbers)
    names = [trial.name for trial in results.trials]
    curves = {names[0]: (Point(1, 0.9), Point(2, 0.31)), names[1]: (Point(1, 0.2),)}
    content = Content(replace(results, curves=curves))
    assert list(content.curves) == names[:1]  # a single point is no curve
    assert "Learning curves of the best 1 trial." in alt_text(content)
    figure = _figure(content)
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["t0  0.3"]
    labels = [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()]
    assert labels == ["val_loss"] * 5  # of trials, the curves, the left slice of both rows, and the color bar
    assert figure.get_figheight() > height(results)


HOSTILE = {
    "equal": lambda: spread([1e308] * 4, given=lambda _: {"lr": "0.1", "layers": "2", "optimizer": "adam"}),
    "one": lambda: spread([0.5], given=numbers),
    "long names": lambda: spread(
        [0.1, 0.2, 0.3],
        parameters=tuple(Parameter(name=f"{LONG}{n}", values=("x" * 500, "$y$", "^_{")) for n in range(12)),
        given=lambda n: {f"{LONG}{p}": ["x" * 500, "$y$", "^_{"][(n + p) % 3] for p in range(12)},
        metric="$\\frac" + "m" * 200,
    ),
    "extreme": lambda: spread(
        [1e308, -1e308, 0.0, 5e-324],
        parameters=(WIDTH, replace(SPACE.parameters[0], name="lr"), replace(WIDTH, name="w2")),
        given=lambda n: {
            "width": ["1e308", "-1e308", "nan", "0"][n],
            "lr": ["1e-300", "1e300", "inf", "-1"][n],
            "w2": ["1", "", "2", "\x00"][n],
        },
    ),
    "hundred categories": lambda: spread(
        [n / 100 for n in range(100)],
        parameters=(Parameter(name="c", values=tuple(f"v{n}" for n in range(100))), WIDTH),
        given=lambda n: {"c": f"v{n}", "width": str(n)},
    ),
    "control characters": lambda: spread(
        [0.1, 0.2],
        parameters=(Parameter(name="\x00\ud800\n{}%", values=("\u202e", "字")),),
        given=lambda n: {"\x00\ud800\n{}%": "\u202e字"[n]},
    ),
    "many trials": lambda: spread(
        [float(n * 7919 % 20_000) for n in range(20_000)],
        parameters=(WIDTH, replace(WIDTH, name="b"), replace(WIDTH, name="c")),
        given=lambda n: {"width": str(n % 512), "b": str(n % 7), "c": str(n % 11)},
    ),
    "seeds": lambda: spread([0.1, 0.2, 1e308], seed="seed", parameters=(replace(WIDTH, name="seed"),)),
}


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", HOSTILE)
def test_picture_is_drawn_for_hostile_values(name):
    content = Content(HOSTILE[name]())
    picture = Image.open(BytesIO(png(content)))
    assert picture.width == 1200
    assert picture.height < 5000
    assert 0 < len(alt_text(content)) <= MAX_ALT


def test_alt_text_has_the_facts_and_without_a_finite_value_there_is_no_picture():
    results = spread([0.3, 0.2, 0.4], given=numbers)
    results = replace(results, trials=(*results.trials, a_result("t9", None, TrialState.FAILED)))
    assert alt_text(Content(results)) == (
        f"Results of {SWEEP}: 4 trials, 3 with a finite val_loss from 0.2 to 0.4. "
        "Best (minimize): 0.2 with lr=0.1, layers=2, optimizer=adam."
    )
    seeds = spread([1.0, 2.0, 3.0], seed="seed", parameters=(replace(WIDTH, name="seed"),))
    assert alt_text(Content(seeds)).endswith("from 1 to 3. Mean 2, 95% interval -0.484165 to 4.48417.")
    content = Content(spread([None, None]))
    assert png(content) == b""
    assert alt_text(content) == f"Results of {SWEEP}: 2 trials without a finite val_loss."


@pytest.mark.parametrize(("goal", "sign"), [(Goal.MINIMIZE, 1), (Goal.MAXIMIZE, -1)])
@pytest.mark.parametrize("values", [(0.1, 0.2, 0.3, 0.4, 0.5, 1e9), (0.1, 0.2, 0.3, 1e9)])
def test_diverged_trial_does_not_flatten_the_others(goal, sign, values):
    content = Content(spread([sign * value for value in values], goal=goal))
    low, high = objective_range(content.space.goal, content.values)
    assert sign * 0.1 in (low, high)
    assert high - low < 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (99.4, "99"),
        (99.7, "100"),
        (254.2, "254"),
        (99_999.7, "1e5"),
        (1e-4, "1e-4"),
        (0.01, "0.01"),
        (0, "0"),
    ],
)
def test_ends_of_a_scale_are_short(value, text):
    assert _tick(value) == text


def test_scale_keeps_the_order_of_the_space_and_cuts_long_names():
    parameter = Parameter(name="o", values=("c", "a", "b"))
    trials = [a_result(f"t{n}", parameters={"o": value}) for n, value in enumerate("bbc")]
    scale = Scale(parameter, trials)
    assert (scale.positions, scale.ends(10)) == ([1.0, 1.0, 0.0], ("c", "b"))
    assert shown("optimizer.schedule.warmup.steps", 12) == "optim….steps"
    assert POINTS_MAX < 20_000


def test_picture_of_several_objectives_has_a_panel_for_each_other_one():
    goals = {"latency": Goal.MINIMIZE, "size": Goal.MAXIMIZE}
    results = spread([0.3, 0.2, 0.4], given=numbers, goals=goals, additional=(*goals,))
    trials = [
        replace(each, more={"latency": 1e308, "size": float(n)}) for n, each in enumerate(results.trials)
    ]
    trials[2] = replace(trials[2], more={})  # stopped: it has only one value
    results = replace(results, trials=tuple(trials), front=tuple(each.name for each in trials[:2]))
    content = Content(results)
    assert "Pareto front: 2 trials." in alt_text(content)
    figure = _figure(content)
    panels = [axes for axes in figure.axes if axes.get_title(loc="left") == "Objectives"]
    assert [axes.get_xlabel() for axes in panels] == ["latency (minimize)", "size (maximize)"]
    assert {axes.get_ylabel() for axes in panels} == {"val_loss (minimize)"}
    assert figure.get_figheight() > height(replace(results, front=()))
