"""Early stopping: medianstop is in the manifest where it works, and rejected where it doesn't."""

from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.core.events import Progress
from bot.core.record import Phase
from bot.core.request import SweepRequest
from bot.core.stopping import StoppingRule
from bot.platform.config.limits import Limits
from bot.sweep.decisions.parent_message import Links, parent
from bot.sweep.launch.plan import plan
from bot.sweep.model.progress import finished_trials
from bot.sweep.spaces.describe import as_yaml
from bot.sweep.spaces.space import parse_space
from k8s.engine import TrialState
from k8s.katib.status import read_trial
from tests.bot.factories import ORDER, SETTINGS, a_sweep
from tests.cases import cases

REQUEST = SweepRequest(branch="main", space="lr")
SPACE = """\
command: {command}
objective: {{metric: loss, goal: minimize}}
metrics: {source}
trials: {{max: 6}}
parameters: {{lr: {{min: 0.1, max: 1}}}}
early_stopping: {setting}
"""


def parsed(setting, source="stdout", command="python t.py"):
    text = SPACE.format(setting=setting, source=source, command=command)
    return parse_space(text, "sweeps/lr.yaml", REQUEST, Limits())


@pytest.mark.parametrize("source", ["stdout", "{from: file, path: /logs/m.txt}"])
@pytest.mark.parametrize(
    ("setting", "settings"),
    [
        ("medianstop", []),
        ("{name: medianstop}", []),
        ("{name: medianstop, start_step: 6}", [{"name": "start_step", "value": "6"}]),
    ],
)
def test_medianstop_is_in_the_experiment_with_its_settings(setting, settings, source):
    space = parsed(setting, source)
    made = plan(replace(ORDER, space=space), SETTINGS).experiment["spec"]["earlyStopping"]
    assert made.pop("algorithmName") == "medianstop"
    assert made == ({"algorithmSettings": settings} if settings else {})
    assert parse_space(as_yaml(space), "x", REQUEST, Limits()) == space


@cases("source", ["tensorboard", "stdout", "push", "{from: file, path: /logs/m.txt}"])
@cases(
    ("setting", "rule"),
    [
        ("asha", StoppingRule(name="asha", grace=5, factor=2)),
        ("median", StoppingRule(name="median", grace=5, factor=2)),
        (
            "{name: asha, grace_period: 3, reduction_factor: 4, dry_run: true}",
            StoppingRule(name="asha", grace=3, factor=4, dry_run=True),
        ),
        (
            "{name: median, min_trials_required: 2}",
            StoppingRule(name="median", grace=5, factor=2, min_trials=2),
        ),
    ],
)
def test_own_rule_is_read_from_any_metric_source_and_katib_doesnt_get_it(setting, rule, source):
    space = parsed(setting, source, "yes | python t.py")
    assert (space.stopping, space.early_stopping) == (rule, None)
    assert "earlyStopping" not in plan(replace(ORDER, space=space), SETTINGS).experiment["spec"]
    assert parse_space(as_yaml(space), "x", REQUEST, Limits()) == space


def test_error_about_early_stopping_names_its_line():
    with pytest.raises(UserError, match=r"^sweeps/lr.yaml:6: early_stopping.reduction_factor: must be at"):
        parsed("{name: asha, reduction_factor: 0}")


@cases(
    ("setting", "source", "command", "message"),
    [
        (
            "medianstop",
            "tensorboard",
            "t",
            "can't with metrics from tensorboard. Set metrics: stdout",
        ),
        ("medianstop", "push", "t", "can't with metrics from push"),
        ("medianstop", "stdout", "t | tee log", "Remove | and & from the command"),
        ("medianstop", "stdout", "t &", "Remove | and & from the command"),
        ("{name: medianstop, min_trials_required: 6}", "stdout", "t", "needs more than 6 trials"),
        ("{name: medianstop, start_step: 0}", "stdout", "t", "start_step: must be at least 1; got 0"),
        ("{name: medianstop, steps: 1}", "stdout", "t", "steps: unknown key"),
        ("{start_step: 1}", "stdout", "t", "missing key: name"),
        (
            "hyperband",
            "stdout",
            "t",
            "its first bracket in Katib (kubeflow/katib#1168); use asha",
        ),
        ("best", "stdout", "t", "best is unknown; use asha, median, or medianstop"),
        (
            "{name: asha, reduction_factor: 1}",
            "tensorboard",
            "t",
            "reduction_factor: must be at least 2; got 1",
        ),
        ("{name: asha, grace_period: 0}", "push", "t", "grace_period: must be at least 1; got 0"),
        ("{name: asha, grace_period: 1.5}", "push", "t", "grace_period: must be a whole number; got 1.5"),
        ("{name: asha, reduction_factor: 7}", "push", "t", "asha needs at least 7 trials (reduction_factor)"),
        ("{name: asha, dry_run: 1}", "push", "t", "dry_run: must be true or false"),
        ("{name: asha, start_step: 4}", "push", "t", "start_step: isn't a setting of asha, which has"),
        ("{name: median, reduction_factor: 4}", "push", "t", "reduction_factor: isn't a setting of median"),
        ("{name: median, min_trials_required: 6}", "push", "t", "median needs at least 7 trials (min_trials"),
        ("{name: medianstop, dry_run: true}", "stdout", "t", "dry_run: isn't a setting of medianstop"),
    ],
)
def test_early_stopping_that_would_not_work_is_rejected_with_the_fix(setting, source, command, message):
    with pytest.raises(UserError) as error:
        parsed(setting, source, command)
    assert str(error.value).startswith("sweeps/lr.yaml:6: early_stopping")
    assert message in str(error.value)


@pytest.mark.parametrize("command", ["cd src && python t.py", "LR=1 t.py", "t.py 'a | b'", "a; b"])
def test_commands_whose_last_program_is_the_training_can_be_stopped(command):
    assert parsed("medianstop", command=command).early_stopping == {}


def test_early_stopped_trial_is_counted_and_keeps_its_value():
    conditions = [{"type": "Running", "status": "True"}, {"type": "EarlyStopped", "status": "True"}]
    observation = {"metrics": [{"name": "loss", "min": "0.5", "max": "1", "latest": "1"}]}
    status = {"conditions": conditions, "observation": observation}
    found = read_trial({"metadata": {"name": "t"}, "status": status}, {"loss": "min"})
    assert (found.state, found.value) == (TrialState.STOPPED_EARLY, 0.5)
    progress = Progress(succeeded=3, stopped_early=1)
    assert finished_trials(progress) == "4 trials done (1 stopped early)"
    shown = str(parent(a_sweep(Phase.RUNNING, submitted=True, progress=progress), Links()).blocks)
    assert "4 of 4 trials · 1 stopped early" in shown
