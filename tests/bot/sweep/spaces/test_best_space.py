"""The space file that runs a best trial again: every space gives one that passes the check."""

from dataclasses import replace

from bot.core.flags import FlagStyle
from bot.core.request import SweepRequest
from bot.core.space import Goal, MetricSource, Parameter, command_line
from bot.core.stopping import ASHA, MEDIAN, StoppingRule
from bot.platform.config.limits import Limits
from bot.sweep.spaces.describe import as_yaml, best_yaml
from bot.sweep.spaces.space import parse_space
from tests.bot.factories import SPACE
from tests.cases import cases

REQUEST = SweepRequest(branch="main", space="best")
VALUES = {"lr": "0.0028079050224114393", "layers": "2", "optimizer": "adam"}
SPACES = {
    "usual": SPACE,
    "early stopping": replace(SPACE, early_stopping={"min_trials_required": "3"}, source=MetricSource.STDOUT),
    "asha": replace(SPACE, stopping=StoppingRule(name=ASHA, factor=4)),
    "median": replace(SPACE, stopping=StoppingRule(name=MEDIAN, grace=5, factor=2)),
    "tpe with settings": replace(SPACE, algorithm="tpe", settings={"n_EI_candidates": "5"}),
    "target and more metrics": replace(
        SPACE, goal=Goal.MAXIMIZE, target=0.9, additional=("acc",), strategy={"acc": "latest"}
    ),
    "hydra": replace(SPACE, flags=FlagStyle.HYDRA, fixed={"model.name": "net"}),
    "limits": replace(
        SPACE,
        trial_hours=0.5,
        max_hours=12.0,
        grace_seconds=90,
        watch={"idle_minutes": 0.0, "low_percent": 2.5},
        target=0.1,
        finish_running=True,
    ),
    "file": replace(SPACE, source=MetricSource.FILE, metrics_path="/out/metrics.log"),
    "text that isn't plain": replace(
        SPACE, metric="null", command="python 🚀.py", fixed={"a": "🎉é", "b": "null"}, env={"A": "0x1F"}
    ),
}


def parsed(space, values, *about):
    return parse_space(best_yaml(space, values, *about), "best.yaml", REQUEST, Limits())


@cases("name", SPACES)
def test_best_space_passes_the_check_and_runs_the_same_command(name):
    space = SPACES[name]
    found = parsed(space, VALUES)
    assert (found.max_trials, found.parallel, found.target) == (1, 1, None)
    for limit in ("trial_hours", "max_hours", "grace_seconds", "watch"):
        assert getattr(found, limit) == getattr(space, limit), limit
    assert (found.metric, found.goal, found.strategies) == (space.metric, space.goal, space.strategies)
    assert command_line(found, VALUES) == command_line(space, VALUES)
    assert {each.name: each.values for each in found.parameters} == {n: (v,) for n, v in VALUES.items()}


def test_best_space_keeps_lists_nested_names_and_switches_and_no_comment_becomes_content():
    values = {"net.sizes": "[64,32]", "amp": "true", "lr": "1e-05"}
    parameters = tuple(Parameter(name=name, values=(value,)) for name, value in values.items())
    space = replace(SPACE, parameters=parameters, switches=True)
    found = parsed(space, values)
    assert command_line(found, values) == "python train.py --amp --lr=1e-05 '--net.sizes=[64,32]'"
    text = best_yaml(SPACE, VALUES, "branch\ncommand: rm\x00")
    assert text.startswith("# branch command: rm \ncommand:")


@cases("name", SPACES)
def test_as_yaml_of_a_space_parses_to_the_same_space(name):
    space = SPACES[name]
    request = SweepRequest(branch="main", space=space.name)
    assert parse_space(as_yaml(space), "lr.yaml", request, Limits()) == space
