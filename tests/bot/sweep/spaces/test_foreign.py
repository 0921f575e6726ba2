"""Sweep files of other tools: what can be mapped is, and what can't is named with its line."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.request import SweepRequest
from bot.core.space import Goal, MetricSource, Parameter
from bot.platform.config.limits import Limits
from bot.sweep.spaces.describe import as_yaml, explain
from bot.sweep.spaces.space import parse_space
from tests.cases import cases

FILES = Path(__file__).parents[4] / "examples" / "sweep-files" / "sweeps"
REQUEST = SweepRequest(branch="main", space="x")
WITH_CMD = replace(REQUEST, cmd="python t.py")
LR = "{name: lr, parameterType: double, feasibleSpace: {min: '0.1', max: '1'}}"
KATIB = """\
kind: Experiment
apiVersion: kubeflow.org/v1beta1
spec:
  objective: {type: minimize, objectiveMetricName: loss}
  algorithm: {algorithmName: random}
  maxTrialCount: 6
"""
WANDB = "method: random\nrun_cap: 6\nprogram: t.py\nmetric: {name: loss}\n"


def parsed(text, request=REQUEST):
    return parse_space(text, "sweeps/x.yaml", request, Limits())


def errors(text, request=REQUEST):
    with pytest.raises(UserError) as error:
        parsed(text, request)
    return str(error.value)


def katib(parameters=f"[{LR}]", more="", request=WITH_CMD):
    return parsed(f"{KATIB}  parameters: {parameters}\n{more}", request)


def wandb(parameters, more="", request=REQUEST):
    return parsed(f"{WANDB}parameters: {parameters}\n{more}", request)


def test_katib_example_becomes_a_space():
    space = parsed((FILES / "katib.yaml").read_text())
    assert space.command == "python3 train.py --epochs=2"
    assert (space.metric, space.goal, space.target, space.additional) == (
        "accuracy",
        Goal.MAXIMIZE,
        0.99,
        ("loss",),
    )
    assert (space.algorithm, space.settings) == ("tpe", {"random_state": "7"})
    assert (space.max_trials, space.parallel, space.max_failed) == (6, 2, 3)
    assert space.source is MetricSource.STDOUT
    assert space.parameters == (
        Parameter(name="lr", min=0.001, max=0.1, log=True),
        Parameter(name="layers", min=1, max=3, integer=True),
        Parameter(name="optimizer", values=("sgd", "adam")),
    )
    assert [note.partition(": ")[0] for note in space.notes] == ["line 4", "line 31"]
    text = (FILES / "launch.yaml").read_text()
    assert errors(text) == 'sweeps/x.yaml:2: has no command. Set cmd=, for example cmd="python train.py".'
    space = parsed(text, WITH_CMD)
    assert (space.source, space.command) == (MetricSource.TENSORBOARD, "python t.py")
    assert [parameter.name for parameter in space.parameters] == ["optim.lr", "seed"]
    text = (FILES / "katib.yaml").read_text().replace("--lr=$", "lr=$")
    for name in re.findall(r"--([\w.]+)=\$", text):
        text = text.replace(f"--{name}=$", f"{name}=$")
    assert parsed(text).flags is FlagStyle.HYDRA
    assert "trialParameters" not in parsed(text).command
    assert parsed((FILES / "katib.yaml").read_text()).flags is FlagStyle.DOTS
    mixed = text.replace("lr=$", "lr=$", 1).replace("lr=$", "--rate=$")
    assert "must be --lr=VALUE, which is how Sweepbot passes it" in errors(mixed)
    text = (FILES / "katib.yaml").read_text().replace("--lr=$", "--rate=$")
    assert "must be --lr=VALUE, which is how Sweepbot passes it" in errors(text)
    assert parsed(text, WITH_CMD).command == "python t.py"
    text = re.sub(r"(--[\w.]+=)\$.*", r"\g<1>1", (FILES / "katib.yaml").read_text())
    assert "trialTemplate: passes no parameter as an argument" in errors(text)
    text = text.replace("containers:", "initContainers:")
    assert errors(text).partition("trialTemplate: ")[2].startswith("has no container")
    assert "missing key" not in errors(text)
    assert katib(more=f"  trialTemplate: {'{a: ' * 13}1{'}' * 13}\n").command == "python t.py"


def test_wandb_example_becomes_a_space_with_its_flags():
    space = parsed((FILES / "wandb.yaml").read_text())
    assert (space.command, space.flags, space.algorithm) == ("python train.py", FlagStyle.DOTS, "tpe")
    assert (space.max_trials, space.target, space.fixed) == (6, 0.05, {"epochs": "2"})
    assert space.parameters == (
        Parameter(name="lr", min=0.001, max=0.1, log=True),
        Parameter(name="layers", min=1, max=3, integer=True),
        Parameter(name="dropout", min=0.0, max=0.5, step=0.1),
        Parameter(name="optim.name", values=("sgd", "adam")),
    )
    named = " ".join(space.notes)
    for word in ("bayes", "wandb.log", "line 8: early_terminate", "line 4: name", "line 5: project"):
        assert word in named
    for words, style, switches in (
        ("${args_no_hyphens}", FlagStyle.HYDRA, False),
        ("${args_no_equals}", FlagStyle.WORDS, False),
        ("${args_no_boolean_flags}", FlagStyle.DOTS, True),
    ):
        space = wandb("{a: {value: false}, b: {values: [1]}}", f"command: ['${{env}}', python3, '{words}']\n")
        assert (space.command, space.flags, space.switches) == ("python3", style, switches)
        assert space.fixed == {"a": "false" if switches else "False"}  # as W&B's agent writes them
    text = "method: random\nparameters: {a: {values: [1]}}\n"
    assert "missing key: metric" in errors(text)
    assert "missing key: program" in errors(text)
    assert "missing key: command" not in errors(text)
    assert "missing key: program" in errors(f"{text}command: ['${{program}}', '${{args}}']\n")
    assert "a: missing key" not in errors(f"{WANDB}parameters: {{a: 5}}")
    request = replace(WITH_CMD, metric="acc", goal="maximize", trials=3)
    assert parsed(text, request).metric == "acc"


@pytest.mark.parametrize("name", ["katib", "wandb", "launch"])
def test_converted_file_is_an_equal_space_file(name):
    space = parsed((FILES / f"{name}.yaml").read_text(), WITH_CMD if name == "launch" else REQUEST)
    again = parsed(as_yaml(space))
    assert again == replace(space, notes=())
    assert "Example: " in explain(space, 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("  nasConfig: {}", ":8: spec.nasConfig: Sweepbot searches no network architectures"),
        (
            "  resumePolicy: Always",
            ':8: spec.resumePolicy: must be Never, LongRunning, or FromVolume; got "Always"',
        ),
        (
            "  metricsCollectorSpec: {collector: {kind: Custom}}",
            "must be StdOut, File, TensorFlowEvent, or",
        ),
        ("  maxTrials: 3", ":8: spec.maxTrials: unknown key of a Katib Experiment"),
        ("extra: 1", ":8: extra: unknown key of a Katib Experiment"),
    ],
)
def test_katib_feature_that_sweepbot_lacks_is_an_error_with_its_line(line, message):
    with pytest.raises(UserError) as error:
        katib(more=f"{line}\n")
    assert message in str(error.value)


@cases(
    ("parameter", "message"),
    [
        (
            "{name: a, parameterType: float, feasibleSpace: {}}",
            'must be double, int, discrete, or categorical; got "float"',
        ),
        ("{name: a, parameterType: double, feasibleSpace: {max: '1'}}", "missing key: min"),
        ("{name: a, parameterType: int, feasibleSpace: {min: '0.5', max: '1'}}", "must be a whole number"),
        ("{name: a, parameterType: double, feasibleSpace: {min: x, max: '1'}}", 'must be a number; got "x"'),
        (
            "{name: a, parameterType: double, feasibleSpace: {min: '1e999', max: '1'}}",
            "must be a finite number",
        ),
        (
            "{name: a, parameterType: double, feasibleSpace: {min: '0', max: '1', distribution: normal}}",
            "distribution normal has no bounds",
        ),
        (
            "{name: a, parameterType: categorical, feasibleSpace: {list: [x], min: '1'}}",
            "min: unknown key of a Katib",
        ),
        ("{parameterType: categorical, feasibleSpace: {list: [x]}}", "needs a name"),
        (f"{LR}, {LR}", 'duplicate parameter "lr"'),
    ],
)
def test_katib_parameters_that_cannot_be_searched_are_reported(parameter, message):
    with pytest.raises(UserError) as error:
        katib(f"[{parameter}]")
    assert message in str(error.value)


def test_katib_collectors_and_policies_have_equivalents():
    file = (
        "{collector: {kind: File}, source: {fileSystemPath: {kind: File, path: /logs/m.txt, format: TEXT}}}"
    )
    space = katib(more=f"  metricsCollectorSpec: {file}\n  resumePolicy: LongRunning\n")
    assert (space.source, space.metrics_path, space.extendable) == (MetricSource.FILE, "/logs/m.txt", True)
    settings = "[{name: start_step, value: '6'}]"
    early = f"  earlyStopping: {{algorithmName: medianstop, algorithmSettings: {settings}}}\n"
    assert katib(more=early).early_stopping == {"start_step": "6"}


def whole(low, high, step=None):
    return Parameter(name="a", min=low, max=high, step=step, integer=True)


LOG_TO_8 = Parameter(name="a", min=1.0, max=8.0, log=True)
LOG_TO_ROOT_E = Parameter(name="a", min=1.0, max=math.exp(0.5), log=True)


@cases(
    ("parameter", "found"),
    [
        ("{min: 1, max: 8}", whole(1, 8)),
        ("{min: 1, max: 8.0}", Parameter(name="a", min=1.0, max=8.0)),
        ("{distribution: uniform, min: 1, max: 8}", Parameter(name="a", min=1.0, max=8.0)),
        (
            "{distribution: q_uniform, min: 0, max: 8, q: 2}",
            whole(0, 8, step=2),
        ),
        (
            "{distribution: log_uniform_values, min: 1, max: 8}",
            LOG_TO_8,
        ),
        (
            "{distribution: log_uniform, min: 0, max: 0.5}",
            LOG_TO_ROOT_E,
        ),
        (
            "{distribution: inv_log_uniform, min: -0.5, max: 0}",
            LOG_TO_ROOT_E,
        ),
        ("{values: [1, true, null, x]}", Parameter(name="a", values=("1", "True", "None", "x"))),
        ("{value: [64, 32]}", Parameter(name="a", values=("[64,32]",))),
        ("{distribution: categorical, values: [1]}", Parameter(name="a", values=("1",))),
    ],
)
def test_wandb_distributions_are_searched_alike(parameter, found):
    assert wandb(f"{{a: {parameter}}}").parameters == (found,)


@cases(
    ("parameter", "message"),
    [
        ("{distribution: normal, mu: 0, sigma: 1}", "distribution normal isn't supported"),
        ("{distribution: beta, a: 1, b: 2, min: 0, max: 1}", "distribution beta isn't supported"),
        ("{values: [1, 2], probabilities: [0.5, 0.5]}", "values are sampled with equal probability"),
        ("{value: {min: 0, max: 1}}", "can only contain letters, digits"),
        ("{values: {min: 0, max: 1}}", "values: must be a list"),
        ("{min: 1}", "needs values, value, or min and max"),
        ("{min: 1, max: 2, q: 1}", "needs a distribution that starts with q_"),
        ("{distribution: log_uniform, min: 0, max: 1e6}", "must be an exponent from -691 to 691"),
        ("{distribution: log_uniform, min: 0, max: x}", "must be an exponent"),
        ("{min: 1, max: 2, mean: 3}", "mean: unknown key of a W&B sweep file"),
    ],
)
def test_wandb_parameters_that_cannot_be_searched_are_reported(parameter, message):
    with pytest.raises(UserError) as error:
        wandb(f"{{a: {parameter}}}")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("scheduler: {}\n", ":6: scheduler: isn't supported"),
        ("polling: 1\n", ":6: polling: unknown key of a W&B sweep file"),
        ("command: ['${program}', '${args_json}']\n", "command[1]: isn't supported. Use ${args}"),
        ("command: ['${program}', '${args_append_hydra}']\n", "command[1]: isn't supported. Use ${args}"),
        ("command: ['${args}', '${program}']\n", "command[0]: must be the last word"),
        ("command: ['${interpreter}', '${program}']\n", ":6: command: has no ${args}"),
    ],
)
def test_wandb_keys_that_cannot_be_mapped_are_reported_with_their_line(more, message):
    with pytest.raises(UserError) as error:
        wandb("{a: {values: [1]}}", more)
    assert message in str(error.value)


LIST = "parameters: [{name: [a], parameterType: {b: c}, feasibleSpace: 1}]\n"
HEAD = "kind: Experiment\napiVersion: kubeflow.org/x\n"


@cases(
    "text",
    [
        "method: [1]\n",
        "method: random\nparameters: 3\n",
        "method: grid\nparameters: {a: 1}\n",
        "method: grid\ncommand: 3\nmetric: 3\n",
        "parameters: [1]\n",
        "kind: 1\napiVersion: kubeflow.org/x\n",
        f"{HEAD}spec: 3\n",
        f"{LIST}objective: 3\nalgorithm: []\ntrialTemplate: {{trialSpec: {{spec: [1]}}}}\n",
    ],
)
def test_foreign_files_of_the_wrong_shape_are_reported(text):
    assert errors(text).startswith("sweeps/x.yaml:")
