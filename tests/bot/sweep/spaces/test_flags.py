"""How parameters and metrics are passed: the preview's command line is what a trial runs."""

import json
import shlex
import subprocess
from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.request import SweepRequest
from bot.core.space import Goal, MetricSource, Parameter, command_line
from bot.platform.config.limits import Limits
from bot.sweep.launch.plan import plan
from bot.sweep.spaces.describe import as_yaml, best_space, explain, first_values, launch_flags
from bot.sweep.spaces.space import parse_space
from k8s.katib.pod_shape import PodShape, Volume
from k8s.katib.spec import INACTIVE
from tests.bot.factories import ORDER, SETTINGS
from tests.cases import cases

REQUEST = SweepRequest(branch="main", space="lr")
LOSS = "objective: {metric: loss, goal: minimize}\n"
SPACE = """\
command: python train.py "$HOME"
objective: {metric: loss, goal: minimize}
flags: STYLE
metrics: SOURCE
parameters:
  optim:
    lr: [1e-4, 1e-3]
    weight_decay: {min: 0.1, max: 0.9}
  layers: [[64, 32], [128]]
  use_bn: [true, false]
  note: it's $5
  epochs: 10
"""


def space_of(style="--a.b=1", source="stdout", more=""):
    text = SPACE.replace("STYLE", f'"{style}"').replace("SOURCE", source) + more
    return parse_space(text, "sweeps/lr.yaml", REQUEST, Limits())


def errors(text):
    with pytest.raises(UserError) as error:
        parse_space(text, "sweeps/lr.yaml", REQUEST, Limits())
    return str(error.value)


def container(space):
    made = plan(replace(ORDER, space=space), SETTINGS).experiment
    pod = made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    return pod["containers"][0]


def run_of(space, values):
    """Return the arguments and variables of a trial by its manifest, as a shell parses them."""
    found = container(space)

    def filled(text):
        for name, value in values.items():
            text = text.replace(f"${{trialParameters.{name}}}", value)
        return text.replace("$$", "$")

    command = filled(found["args"][0]).split("( python train.py ", 1)[1].split(" ) ")[0]
    variables = {
        one["name"]: filled(one["value"])
        for one in found["env"]
        if "trialParameters" in one["value"] or one["name"] in {"NOTE", "EPOCHS", "TENSORBOARD_DIR"}
    }
    variables.pop("MLFLOW_RUN_CONTEXT")
    printed = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {command}"],
        check=True,
        capture_output=True,
        text=True,
        env={"HOME": "/h", "PATH": "/usr/bin:/bin"},
    )
    return printed.stdout.splitlines(), variables


@pytest.mark.parametrize("source", ["stdout", "tensorboard"])
@pytest.mark.parametrize("more", ["", "booleans: switch\n"])
@pytest.mark.parametrize("style", FlagStyle)
def test_command_line_of_the_preview_is_exactly_what_a_trial_runs(style, more, source):
    if more and not style.has_switches:
        pytest.skip("switches are flags")
    space = space_of(style, source, more)
    for use_bn in ("true", "false"):
        values = first_values(space) | {"use_bn": use_bn}
        words, variables = run_of(space, values)
        shown = shlex.split(command_line(space, values, **launch_flags(space)).replace("$HOME", "/h", 1))
        split = shown.index("python")
        assert ["python", "train.py", *words] == shown[split:]
        assert variables == dict(word.split("=", 1) for word in shown[:split])


@pytest.mark.parametrize(
    ("style", "words"),
    [
        (
            "--a.b=1",
            ["--note=it's $5", "--epochs=10", "--layers=[64,32]", "--use_bn=true", "--optim.lr=1e-4"],
        ),
        (
            "--a-b=1",
            ["--note=it's $5", "--epochs=10", "--layers=[64,32]", "--use-bn=true", "--optim-lr=1e-4"],
        ),
        ("a.b=1", ["note=it's $5", "epochs=10", "layers=[64,32]", "use_bn=true", "optim.lr=1e-4"]),
        ("hydra", ["note=it's $5", "epochs=10", "layers=[64,32]", "use_bn=true", "optim.lr=1e-4"]),
        ("env", ["NOTE=it's $5", "EPOCHS=10", "LAYERS=[64,32]", "USE_BN=true", "OPTIM_LR=1e-4"]),
    ],
)
def test_each_style_passes_nested_names_lists_booleans_and_fixed_values(style, words):
    space = space_of(style)
    shown = shlex.split(command_line(space, first_values(space)))
    assert [word for word in shown if "decay" not in word.lower() and "=" in word] == words


def test_class_is_passed_before_its_arguments_whichever_of_them_is_fixed():
    named = Parameter(name="optimizer.class_path", values=("torch.optim.SGD",))
    space = replace(space_of(), parameters=(named,), fixed={"optimizer.init_args.momentum": "0.9"})
    passed = ["--optimizer.class_path=torch.optim.SGD", "--optimizer.init_args.momentum=0.9"]
    assert shlex.split(command_line(space, first_values(space)))[3:] == passed
    assert run_of(space, first_values(space))[0][1:] == passed


def test_switches_are_bare_flags_or_nothing():
    space = space_of(more="booleans: switch\n")
    values = first_values(space)
    assert "--use_bn" in shlex.split(command_line(space, values | {"use_bn": "true"}))
    assert "use_bn" not in command_line(space, values | {"use_bn": "false"})
    text = SPACE.replace("STYLE", "env").replace("SOURCE", "stdout") + "booleans: switch\n"
    assert "booleans: switch needs flags that start with --; got flags: env" in errors(text)


@cases(
    ("parameters", "style", "message"),
    [
        ("{path: [a, b]}", "env", "the environment variable PATH already has another meaning"),
        ("{ld_preload: [a, b]}", "env", "the environment variable LD_PRELOAD already"),
        ("{rank: [8, 16]}", "env", "the environment variable RANK already has another meaning"),
        ("{a_b: [1, 2], a-b: [1, 2]}", "--a-b=1", "is passed as --a-b, like a_b. Rename one of them."),
        ("{a.b: [1], A_B: [1]}", "env", "is passed as A_B, like a.b"),
        (
            "{lr: 1}",
            "--a.b=1",
            "must have at least one parameter with a range ({min: 1e-4, max: 1e-1}) or a list of values",
        ),
        ("{lr: [1], x: '${trialSpec.Name}'}", "--a.b=1", "x: must be a value on one line"),
        ("{lr: [1], x: null}", "--a.b=1", None),
        ("{lr: [[a b]]}", "--a.b=1", "in a list can only contain letters"),
        ("{lr: [[{a: b}]]}", "--a.b=1", "in a list can only contain letters"),
        ("{lr: [1]}", "-a", 'flags: must be --a.b=1, --a-b=1, --a.b 1, a.b=1, env, or hydra; got "-a"'),
        ("{a: {b: {c: x y}}, lr: [1]}", "--a.b=1", None),
    ],
)
def test_parameters_that_cannot_be_passed_are_reported(parameters, style, message):
    text = (
        f"command: t\nobjective: {{metric: m, goal: minimize}}\nflags: {style!r}\nparameters: {parameters}\n"
    )
    if message is None:
        parse_space(text, "sweeps/lr.yaml", REQUEST, Limits())
    else:
        assert message in errors(text)


def objective(more):
    return f"objective: {{metric: loss, goal: minimize, {more}}}\n"


HEAD = "command: t\nparameters: {lr: [1, 2]}\n"


@cases(
    ("text", "message"),
    [
        (LOSS + "metrics: print", 'must be tensorboard, stdout, file, or push; got "print"'),
        (LOSS + "metrics: file", "from: file needs the path of the file"),
        (LOSS + "metrics: {from: file, path: logs/m.txt}", "must be an absolute path"),
        (LOSS + "metrics: {from: file, path: /logs/../m}", "must be an absolute path"),
        (LOSS + "metrics: {from: file, path: /m.txt}", "must be a file in a directory of its own"),
        (LOSS + "metrics: {from: file, path: /tmp/m.txt}", "must be a file in a directory of its own"),
        (LOSS + "metrics: {from: stdout, path: /logs/m.txt}", "only from: file has a path"),
        (LOSS + "metrics: {form: stdout}", "unknown key. Did you mean from?"),
        ("objective: {metric: val/loss, goal: minimize}", "a TensorBoard tag of letters"),
        (
            "objective: {metric: a b, goal: minimize}\nmetrics: stdout",
            "a name of up to 100 letters, digits, and _./- characters",
        ),
        (objective("additional: [loss]"), "is the objective's metric"),
        (objective("additional: [a, a]"), 'duplicate metric "a"'),
        (
            objective("strategy: last"),
            'must be min, max, or latest; got "last"',
        ),
        (
            objective("strategy: {acc: max}"),
            "must be the objective's metric or",
        ),
        (
            objective("additional: [a, b, c, d, e, f, g, h, i]"),
            "can have at most 8 metrics",
        ),
    ],
)
def test_metrics_that_katib_would_not_find_are_reported(text, message):
    assert message in errors(f"{HEAD}{text}\n")


@pytest.mark.parametrize(
    ("text", "collector"),
    [
        ("", "TensorFlowEvent"),
        ("metrics: tensorboard", "TensorFlowEvent"),
        ("metrics: stdout", "File"),
        ("metrics: {from: file, path: /logs/m.txt}", "File"),
        ("metrics: {from: push}", "Push"),
    ],
)
def test_each_source_has_its_collector_and_only_tensorboard_a_flag(text, collector):
    more = objective("additional: [acc], strategy: {acc: max, loss: latest}")
    space = parse_space(f"{HEAD}{more}{text}\n", "f", REQUEST, Limits())
    made = plan(replace(ORDER, space=space), SETTINGS).experiment["spec"]
    assert made["metricsCollectorSpec"]["collector"]["kind"] == collector
    assert made["objective"]["additionalMetricNames"] == ["acc"]
    assert made["objective"]["metricStrategies"] == [
        {"name": "loss", "value": "latest"},
        {"name": "acc", "value": "max"},
    ]
    assert ("--tensorboard_dir" in container(space)["args"][0]) == (collector == "TensorFlowEvent")


def test_search_service_gets_the_conditions_and_the_step_and_value_of_stopped_trials():
    """Katib passes on only metrics with a strategy, and adds its default for the objective."""
    space = replace(parse_space(HEAD + objective(""), "f", REQUEST, Limits()), algorithm="sweepbot")
    made = plan(replace(ORDER, space=space), SETTINGS).experiment["spec"]["objective"]
    assert made["metricStrategies"] == [
        {"name": "sweepbot-stopped-value", "value": "latest"},
        {"name": "sweepbot-stopped-step", "value": "latest"},
    ]
    text = CONDITIONAL.replace("STYLE", '"--a.b=1"')
    space = replace(parse_space(text, "f", REQUEST, Limits()), algorithm="sweepbot")
    [setting] = plan(replace(ORDER, space=space), SETTINGS).experiment["spec"]["algorithm"][
        "algorithmSettings"
    ]
    assert setting["name"] == "conditions"
    assert json.loads(setting["value"]) == {"momentum": ["optimizer", "sgd"], "betas": ["optimizer", "adam"]}
    assert "momentum: if: needs flags" in errors(CONDITIONAL.replace("STYLE", "env"))


def test_metrics_option_overrides_the_file_but_not_into_a_cluster_volume():
    request = replace(REQUEST, metrics="/logs/m.txt", flags="env")
    space = parse_space(f"{HEAD}{LOSS}metrics: push\n", "f", request, Limits())
    assert (space.source, space.metrics_path, space.flags) == (
        MetricSource.FILE,
        "/logs/m.txt",
        FlagStyle.ENV,
    )
    space = parse_space(f"{HEAD}{LOSS}metrics: {{from: file, path: /data/m.txt}}\n", "f", REQUEST, Limits())
    shape = PodShape(volumes=(Volume(claim="c", at="/data", read_only=False),))
    with pytest.raises(UserError, match=r"/data/m\.txt is in /data, where this cluster mounts a volume"):
        plan(replace(ORDER, space=space, shape=shape), SETTINGS)


CONDITIONAL = """\
command: python train.py "$HOME"
objective: {metric: loss, goal: minimize}
metrics: stdout
flags: STYLE
parameters:
  optimizer: [adam, sgd]
  momentum: {if: optimizer=sgd, min: 0.1, max: 0.9}
  betas: {if: optimizer=adam, values: [[0.9,0.99], [0.8,0.9]]}
"""


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("--a.b=1", ["--optimizer=sgd", "--momentum=0.5"]),
        ("--a.b 1", ["--optimizer", "sgd", "--momentum", "0.5"]),
        ("a.b=1", ["optimizer=sgd", "momentum=0.5"]),
    ],
)
def test_parameter_whose_condition_is_not_met_is_left_out(style, expected):
    space = parse_space(CONDITIONAL.replace("STYLE", f'"{style}"'), "f", REQUEST, Limits())
    assert run_of(space, {"optimizer": "sgd", "momentum": "0.5", "betas": INACTIVE})[0][1:] == expected
    values = {"optimizer": "sgd", "momentum": "0.5"}  # as results have them
    assert shlex.split(command_line(space, values))[3:] == expected
    assert first_values(space) == {"optimizer": "adam", "betas": "[0.9,0.99]"}
    assert (
        parse_space(as_yaml(space), "f", replace(REQUEST, flags=style), Limits()).parameters
        == space.parameters
    )
    assert "momentum: 0.1 to 0.9, if optimizer=sgd" in explain(space, 1)


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        (
            "optimizer",
            'if: must be a parameter and its values, for example optimizer=sgd,adam; got "optimizer"',
        ),
        ("optimizer=sgd", ""),
        ("optimizer=rms", "if: must name values of a parameter that is a list without a condition"),
        ("lr=sgd", 'for example optimizer=sgd; got "lr=sgd"'),
        ("momentum=0.5", "a list without a condition"),
    ],
)
def test_condition_on_something_else_is_an_error_with_its_place(condition, why):
    text = CONDITIONAL.replace("STYLE", '"--a.b=1"').replace("optimizer=sgd", condition)
    if not why:
        assert parse_space(text, "f", REQUEST, Limits())
    else:
        assert why in errors(text)
        assert "sweeps/lr.yaml:" in errors(text)


SEVERAL = """\
command: python train.py
objective:
- {metric: acc, goal: maximize}
- {metric: latency, goal: minimize, strategy: latest}
parameters: {lr: [1, 2]}
"""


def test_list_of_objectives_reaches_katib_unless_the_command_replaces_it():
    space = replace(parse_space(SEVERAL, "f", REQUEST, Limits()), algorithm="sweepbot")
    assert space.objectives == {"acc": Goal.MAXIMIZE, "latency": Goal.MINIMIZE}
    spec = plan(replace(ORDER, space=space), SETTINGS).experiment["spec"]
    assert spec["objective"]["additionalMetricNames"] == ["latency"]
    named = {each["name"]: each["value"] for each in spec["objective"]["metricStrategies"]}
    assert (named["acc"], named["latency"]) == ("max", "latest")
    [setting] = spec["algorithm"]["algorithmSettings"]
    assert (setting["name"], json.loads(setting["value"])) == ("objectives", {"latency": "minimize"})
    again = parse_space(as_yaml(replace(space, algorithm="auto")), "f", REQUEST, Limits())
    assert replace(again, algorithm="sweepbot") == space
    assert "Maximize acc, minimize latency." in explain(space, 1)
    best = parse_space(as_yaml(best_space(space, {"lr": "1"})), "f", REQUEST, Limits())
    assert (best.objectives, best.strategies) == ({"acc": Goal.MAXIMIZE}, space.strategies)
    space = parse_space(SEVERAL, "f", replace(REQUEST, metric="f1"), Limits())
    assert (space.objectives, space.additional) == ({"f1": Goal.MAXIMIZE}, ())
    space = parse_space(SEVERAL, "f", replace(REQUEST, metric="latency"), Limits())
    assert (space.objectives, space.strategy) == ({"latency": Goal.MINIMIZE}, {"latency": "latest"})
    space = parse_space(SEVERAL, "f", replace(REQUEST, goal="minimize"), Limits())
    assert space.objectives == {"acc": Goal.MINIMIZE, "latency": Goal.MINIMIZE}


@cases(
    ("objective", "why"),
    [
        ("[]", "a list must have 2 to 3 objectives; got 0"),
        ("[{metric: a, goal: minimize}]", "a list must have 2 to 3 objectives; got 1"),
        (f"[{', '.join(['{metric: a, goal: minimize}'] * 4)}]", "a list must have 2 to 3 objectives; got 4"),
        ("[{metric: a, goal: minimize}, {metric: a, goal: maximize}]", 'duplicate metric "a"'),
        ("[{metric: a, goal: minimize}, {metric: b}]", "missing key: goal"),
        ("[{metric: a, goal: minimize}, b]", "must be a mapping with metric, goal, and strategy"),
        ("[{metric: a, goal: minimize}, {metric: b/c, goal: minimize}]", "must be a TensorBoard tag"),
        (
            "[{metric: a, goal: minimize, target: 1}, {metric: b, goal: minimize}]",
            "unknown key. Only a single objective has it.",
        ),
        (
            "[{metric: a, goal: minimize}, {metric: b, goal: minimize}]\nearly_stopping: asha",
            "judges by one metric; remove it, or the other objectives",
        ),
    ],
)
def test_list_of_objectives_that_cant_be_searched_is_rejected(objective, why):
    with pytest.raises(UserError) as refused:
        parse_space(f"{HEAD}objective: {objective}\n", "f", REQUEST, Limits())
    assert why in str(refused.value)
