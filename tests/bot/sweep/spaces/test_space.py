"""Space files: their meaning, and every rule of Katib, checked before a build."""

from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.core.request import SweepRequest
from bot.core.space import Goal, Parameter, SearchSpace
from bot.platform.config.limits import Limits
from bot.sweep.spaces.space import combinations, parse_space
from tests.cases import cases

REQUEST = SweepRequest(branch="main", space="lr")
LIMITS = Limits(gpus_per_trial=8, parallel=8, trials=100, trial_hours=8)
FILE = "sweeps/lr.yaml"
FULL = """\
command: python train.py
objective: {metric: val_loss, goal: minimize, target: 0.02}
algorithm: random
trials: {max: 20, parallel: 5, max_failed: 2}
parameters:
  lr: {min: 1e-4, max: 1e-1, scale: log}
  layers: {min: 1, max: 4}
  dropout: {min: 0, max: 0.5, step: 0.1}
  optimizer: [adam, sgd, 1e-4, on]
description: what the learning rate does
"""
SHORT = """\
command: python train.py
objective: {metric: acc, goal: maximize}
parameters: {lr: [1, 2]}
"""


def space(text: str, request: SweepRequest = REQUEST, limits: Limits = LIMITS) -> SearchSpace:
    return parse_space(text, FILE, request, limits)


def complaint(text: str, request: SweepRequest = REQUEST, limits: Limits = LIMITS) -> str:
    with pytest.raises(UserError) as error:
        space(text, request, limits)
    return str(error.value)


def test_metric_option_can_name_an_additional_metric():
    text = SHORT.replace("goal", "additional: [loss, f1], goal")
    found = space(text, replace(REQUEST, metric="loss", goal="minimize"))
    assert (found.metric, found.goal, found.additional) == ("loss", Goal.MINIMIZE, ("f1",))
    assert "always shown; remove it here" in complaint(text.replace("f1", "acc"))


def test_read_space_reads_all_keys_and_has_defaults() -> None:
    assert space(FULL) == SearchSpace(
        name="lr",
        command="python train.py",
        metric="val_loss",
        goal=Goal.MINIMIZE,
        target=0.02,
        algorithm="random",
        max_trials=20,
        parallel=5,
        max_failed=2,
        trial_hours=8,
        parameters=(
            Parameter(name="lr", min=1e-4, max=1e-1, log=True),
            Parameter(name="layers", min=1, max=4, integer=True),
            Parameter(name="dropout", min=0, max=0.5, step=0.1),
            Parameter(name="optimizer", values=("adam", "sgd", "1e-4", "on")),
        ),
    )
    found = space(SHORT)
    usual = (found.algorithm, found.target, found.max_trials, found.parallel, found.max_failed)
    assert usual == ("auto", None, 12, 4, 3)
    assert space(SHORT + "trials: {trial_hours: 0.5}").trial_hours == 0.5
    assert space(SHORT).trial_hours == LIMITS.trial_hours == 8
    assert space(SHORT, limits=Limits()).trial_hours is None
    assert space(SHORT + "trials: {grace_seconds: 120}").grace_seconds == 120
    assert space(SHORT).grace_seconds is None
    found = space(SHORT, limits=Limits(parallel=2, trials=5))
    assert (found.max_trials, found.parallel, found.max_failed) == (5, 2, 3)


@cases(
    ("line", "reported"),
    [
        ("{min: 2, max: 1}", "lr: min must be less than max; got min 2, max 1"),
        ("{min: 1, max: 1}", "lr: min must be less than max; got min 1, max 1"),
        ("{min: 0, max: 1.0, scale: log}", "lr: min must be above 0 on a log scale; got 0"),
        ("{min: 0.1, max: 1.0, step: 0.1, scale: log}", "lr: a log scale can't have a step"),
        ("{min: 0, max: 1.0, scale: ln}", 'lr.scale: must be linear or log; got "ln"'),
        ("{min: 0, max: 1, step: 0}", "lr: step must be above 0 and at most max - min; got 0"),
        ("{min: 0, max: 1, step: 2}", "lr: step must be above 0 and at most max - min; got 2"),
        (
            "{min: 1, max: 9, step: 2}",
            "lr: auto samples multiples of step: min and max must be multiples of 2",
        ),
        ("{min: 0.05, max: 0.5, step: 0.1}", "min and max must be multiples of 0.1, or use grid"),
        ("{min: '1', max: 2}", 'lr.min: must be a number; got the text "1". Remove the quotes.'),
        ("{min: low, max: 2}", 'lr.min: must be a number; got "low"'),
        ("{min: .nan, max: 2}", "lr.min: must be a finite number"),
        ("{min: 1}", "lr: missing key: max"),
        ("{min: 1, maxi: 2}", "lr.maxi: unknown key. Did you mean max?"),
        ("{values: [1, 2]}", "lr: must be the list itself, for example [64, 128], without `values:`"),
        ("[]", "lr: must have at least one value"),
        ("[a, b, a]", 'lr[2]: duplicate value "a"'),
        ("[a, 'b c']", 'lr[1]: can only contain letters, digits, and _.,:/+=@-; got "b c"'),
        (r'[a, "b\nspace.yaml:1: c"]', 'letters, digits, and _.,:/+=@-; got "b space.yaml:1: c"'),
        ("[a, ~]", 'lr[1]: can only contain letters, digits, and _.,:/+=@-; got "~"'),
        ("[a, '']", "lr[1]: can only contain letters, digits, and _.,:/+=@-; got nothing"),
        ("[{a: b}]", "lr[0]: can only contain letters, digits, and _.,:/+=@-; got a mapping"),
        ("['a\";$(id)']", "can only contain letters, digits, and _.,:/+=@-; got "),
    ],
)
def test_read_space_invalid_parameter_names_its_line(line: str, reported: str) -> None:
    text = f"command: x\nobjective: {{metric: m, goal: minimize}}\nparameters:\n  lr: {line}\n"
    assert complaint(text).startswith(f"{FILE}:4: parameters.lr")
    assert reported in complaint(text)


@cases(
    ("text", "reported"),
    [
        (SHORT.replace("lr:", "2lr:"), "parameters.2lr: name must start with a letter"),
        (SHORT.replace("lr:", "'l r':"), "parameters.l r: name must start with a letter"),
        (
            SHORT.replace("lr:", "tensorboard_dir:"),
            "parameters.tensorboard_dir: reserved name: the flag already",
        ),
        (SHORT.replace("lr:", "config_path:"), "parameters.config_path: reserved name: the flag already"),
        (SHORT.replace("{lr: [1, 2]}", "{}"), ":3: parameters: must have at least one parameter"),
        (SHORT.replace("{lr: [1, 2]}", ""), ":3: parameters: must be a mapping; got nothing"),
        (SHORT.replace("parameters: {lr: [1, 2]}\n", ""), ":1: missing key: parameters"),
        (SHORT.replace("command: python train.py\n", ""), ":1: missing key: command"),
        (SHORT.replace("python train.py", ""), ":1: command: must be text; got nothing"),
        (SHORT.replace("maximize", "up"), ':2: objective.goal: must be minimize or maximize; got "up"'),
        (SHORT.replace("metric: acc, ", ""), ":2: objective: missing key: metric"),
        (
            SHORT.replace("acc", "val/acc"),
            'without a slash; got "val/acc". Log it by such a tag, or print it and set metrics: stdout.',
        ),
        (
            SHORT.replace("maximize", "maximize, target: high"),
            'objective.target: must be a number; got "high"',
        ),
        (SHORT + "algorithm: tpee", 'multivariate-tpe; got "tpee". Did you mean tpe?'),
        (SHORT + "max_hours: 2", ":4: max_hours: unknown key. Set it under `trials:`."),
        (SHORT + "goal: minimize", ":4: goal: unknown key. Set it under `objective:`."),
        (SHORT + "gpus: 2", ":4: gpus: unknown key. Set it in the command: `/sweep … gpus=`."),
        (
            SHORT + "resources: {memory: 8GB}",
            "CPU and memory come with `gpus=` or `profile=` of the command.",
        ),
        (
            SHORT.replace("{lr: [1, 2]}", "[lr, layers]"),
            ":3: parameters: must be a mapping; got a list",
        ),
        (SHORT + "parameter: 1", ":4: parameter: unknown key. Did you mean parameters?"),
        (SHORT + "trials: {maxx: 1}", ":4: trials.maxx: unknown key. Did you mean max?"),
        (SHORT + "trials: {max: 0}", ":4: trials.max: must be at least 1; got 0"),
        (SHORT + "trials: {max: '9'}", ':4: trials.max: must be a number; got the text "9"'),
        (
            SHORT + "trials: {max: 101}",
            ":4: trials.max: can be at most 100 on this cluster (limits.trials); got 101",
        ),
        (SHORT + "trials: {parallel: 0}", ":4: trials.parallel: must be at least 1; got 0"),
        (
            SHORT + "trials: {parallel: 9}",
            "parallel: can be at most 8 on this cluster (limits.parallel); got 9",
        ),
        (
            SHORT + "trials: {max: 3, parallel: 4}",
            ":4: trials.parallel: can't exceed the number of trials (3); got 4",
        ),
        (
            SHORT + "trials: {max: 3, max_failed: 4}",
            ":4: trials.max_failed: can't exceed the number of trials (3); got 4",
        ),
        (
            SHORT + "trials: {trial_hours: 9}",
            ":4: trials.trial_hours: can be at most 8 on this cluster (limits.trial_hours); got 9",
        ),
        (
            SHORT + "trials: {trial_hours: 0}",
            ":4: trials.trial_hours: must be at least 0.017 (one minute); got 0",
        ),
        (
            SHORT + "trials: {trial_hours: 1e6}",
            ":4: trials.trial_hours: must be at most 596523. Omit it for no limit.",
        ),
        (SHORT + "trials: {trial_hours: 2h}", ':4: trials.trial_hours: must be a number; got "2h"'),
        (
            SHORT + "trials: {grace_seconds: 0}",
            ":4: trials.grace_seconds: must be at least 1; got 0",
        ),
        (
            SHORT + "trials: {grace_seconds: 601}",
            "can be at most 600 on this cluster (limits.grace_seconds); got 601",
        ),
        (SHORT + "trials: {max_failed: -1}", ":4: trials.max_failed: must be at least 0; got -1"),
        (SHORT + "description: |\n  a\n  b\n", ":4: description: must be one line"),
        (
            "- a",
            ":1: must be a mapping with command, objective, metrics, flags, booleans, algorithm",
        ),
    ],
)
def test_read_space_invalid_value_names_its_line(text: str, reported: str) -> None:
    assert reported in complaint(text)
    assert complaint(text).startswith(FILE)


def test_read_space_reports_all_errors_in_file_order_and_each_once() -> None:
    text = FULL.replace("minimize", "min").replace("max: 4", "max: 0").replace("20", "200")
    assert complaint(text).splitlines() == [
        f'{FILE}:2: objective.goal: must be minimize or maximize; got "min". Did you mean minimize?',
        f"{FILE}:4: trials.max: can be at most 100 on this cluster (limits.trials); got 200",
        f"{FILE}:7: parameters.layers: min must be less than max; got min 1, max 0",
    ]
    assert (
        complaint(SHORT + "trials: {trial_hours: 2h}")
        == f'{FILE}:4: trials.trial_hours: must be a number; got "2h"'
    )


GRID = SHORT.replace("{lr: [1, 2]}", "{lr: [1, 2], layers: {min: 1, max: 3}}") + "algorithm: grid\n"


@pytest.mark.parametrize("folded", [">\n  python train.py\n  --epochs=3", "|\n  python train.py --epochs=3"])
def test_command_of_a_yaml_block_has_no_line_break(folded: str) -> None:
    assert space(SHORT.replace("python train.py", folded)).command == "python train.py --epochs=3"


def test_grid_has_the_trials_of_its_combinations() -> None:
    found = space(GRID)
    assert (combinations(found.parameters), found.max_trials, found.parallel, found.max_failed) == (
        6,
        6,
        4,
        3,
    )
    found = space(GRID + "trials: {max: 50, parallel: 8, max_failed: 9}")
    assert (found.max_trials, found.parallel, found.max_failed) == (6, 6, 6)
    assert space(GRID + "trials: {max: 4}").max_trials == 4
    many = "".join(f"  p{n}: {{min: 1, max: 1{'0' * 299}}}\n" for n in range(30))
    assert combinations(space(f"{FULL.partition('parameters:')[0]}parameters:\n{many}").parameters) == 10**15
    assert combinations(space(FULL).parameters) is None


@cases(
    ("parameter", "size"),
    [
        ("[a, b, c]", 3),
        ("{min: 1, max: 4}", 4),
        ("{min: 1, max: 9, step: 2}", 5),
        ("{min: 1, max: 8, step: 2}", 4),
        ("{min: 0, max: 0.5, step: 0.1}", 6),
        ("{min: 0.0, max: 1.0, step: 0.25}", 5),
        ("{min: 0.0, max: 1.0, step: 0.3}", 4),
        ("{min: 0, max: 0.3, step: 0.1}", 3),  # numpy.arange's rounding, which Katib counts with
    ],
)
def test_combinations_count_steps_as_katib(parameter: str, size: int) -> None:
    assert combinations(space(GRID.replace("{min: 1, max: 3}", parameter)).parameters) == 2 * size


@pytest.mark.parametrize(
    ("parameter", "reported"),
    [
        ("{min: 0, max: 0.5}", "parameters.layers: grid needs a step here, or a list of values"),
        ("{min: 1, max: 5, scale: log}", "parameters.layers: grid has no log scale; list the values"),
        ("{min: 1, max: 90000}", "the grid has 180,000 combinations; the limit is 100,000. Use fewer values"),
        ("{min: 0, max: 1e299, step: 1e-300}", "combinations; the limit is 100,000"),
        ("{min: 1, max: 60}", ":1: trials.max: can be at most 100 on this cluster (limits.trials); got 120"),
    ],
)
def test_grid_without_steps_is_rejected(parameter: str, reported: str) -> None:
    assert reported in complaint(GRID.replace("{min: 1, max: 3}", parameter))


def test_options_of_the_command_override_the_file_and_lower_its_limits() -> None:
    found = space(FULL, replace(REQUEST, cmd="python other.py", trials=30, parallel=8))
    assert (found.command, found.max_trials, found.parallel) == ("python other.py", 30, 8)
    found = space(FULL, replace(REQUEST, trials=1))
    assert (found.max_trials, found.parallel, found.max_failed) == (1, 1, 1)
    assert space(SHORT.replace("command: python train.py\n", ""), replace(REQUEST, cmd="x")).command == "x"


@pytest.mark.parametrize(
    ("request_", "reported"),
    [
        (replace(REQUEST, trials=0), "trials=0 in the command: must be at least 1; got 0"),
        (replace(REQUEST, trials=500), "trials=500 in the command: can be at most 100 on this cluster"),
        (
            replace(REQUEST, parallel=7),
            "parallel=7 in the command: can't exceed the number of trials (6); got 7",
        ),
        (replace(REQUEST, parallel=9), "parallel=9 in the command: can be at most 8 on this cluster"),
    ],
)
def test_options_errors_name_the_option(request_: SweepRequest, reported: str) -> None:
    assert complaint(GRID, request_).startswith(reported)
