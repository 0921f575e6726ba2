"""From an order to manifests: names that fit, one build per commit and recipe, commands wrapped safely."""

import json
import subprocess
from contextlib import nullcontext
from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.ids import candidates
from bot.core.space import MetricSource, command_line
from bot.core.stopping import StoppingRule
from bot.sweep.launch.plan import DIGEST, check_command, image_with, plan
from tests.bot.factories import COMMIT, ORDER, OWNER, PLAN, SETTINGS, SPACE
from tests.cases import cases


def test_plan_uses_the_image_by_digest_and_katibs_strings():
    assert image_with(PLAN, "sha256:ab") == "registry:5000/sweepbot/digits@sha256:ab"
    assert DIGEST in PLAN.image_by_digest
    spaces = {p["name"]: p["feasibleSpace"] for p in PLAN.experiment["spec"]["parameters"]}
    assert spaces == {
        "lr": {"min": "0.0001", "max": "0.1", "distribution": "logUniform"},
        "layers": {"min": "1", "max": "4"},
        "optimizer": {"list": ["adam", "sgd"]},
    }
    experiment = plan(replace(ORDER, space=replace(SPACE, trial_hours=1.5)), SETTINGS).experiment
    job = experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]
    assert job["template"]["spec"]["activeDeadlineSeconds"] == 5400
    assert "activeDeadlineSeconds" not in job

    def labels(order):
        return plan(order, SETTINGS).experiment["metadata"]["labels"]

    assert labels(replace(ORDER, team="vision"))["sweepbot/team"] == "vision"
    assert "sweepbot/team" not in labels(ORDER)


def variables(experiment):
    pod = experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    return {e["name"]: e["value"] for e in pod["containers"][0]["env"]}


def test_plan_names_mlflow_runs_by_trial_and_tags_their_origin():
    order = replace(ORDER, owner_name="ada", team="vision")
    env = variables(plan(order, SETTINGS).experiment)
    assert json.loads(env["MLFLOW_RUN_CONTEXT"]) == {
        "mlflow.runName": "${trialParameters.trialName}",
        "mlflow.user": "ada",
        "mlflow.source.git.commit": COMMIT,
        "mlflow.source.git.branch": "main",
        "mlflow.source.git.repoURL": "https://git.example/digits.git",
        "sweepbot.sweep": "lr-brave-otter",
        "sweepbot.trial": "${trialParameters.trialName}",
        "sweepbot.owner": "ada",
        "sweepbot.owner_id": OWNER,
        "sweepbot.team": "vision",
        "sweepbot.repository": "https://git.example/digits.git",
        "sweepbot.branch": "main",
        "sweepbot.commit": COMMIT,
    }
    assert env["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert env["MLFLOW_EXPERIMENT_NAME"] == PLAN.results_name == "digits/lr-brave-otter"


def test_plan_passes_only_mlflows_credentials_from_the_secret():
    settings = SETTINGS.model_copy(update={"mlflow_secret": "mlflow-login"})
    job = plan(ORDER, settings).experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]
    [training] = job["template"]["spec"]["containers"]
    found = {e["name"]: e["valueFrom"]["secretKeyRef"] for e in training["env"] if "valueFrom" in e}
    assert found == {
        name: {"name": "mlflow-login", "optional": True, "key": name}
        for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
    }
    assert "envFrom" not in training


LOCK = 'version = 1\n[[package]]\nname = "torch"\nversion = "2.9.0"\n'


@cases(
    ("files", "changes", "image", "refused"),
    [
        ({"uv.lock": LOCK}, {}, None, True),
        ({"uv.lock": LOCK}, {"source": MetricSource.PUSH}, "reg/sweepbot:1", True),
        ({"uv.lock": LOCK}, {"source": MetricSource.STDOUT}, None, False),
        ({"uv.lock": LOCK}, {"stopping": None}, None, False),
        ({"uv.lock": LOCK}, {}, "reg/sweepbot:1", False),
        ({"uv.lock": LOCK.replace("torch", "mlflow-skinny")}, {}, None, False),
        ({"Dockerfile": "FROM python", "uv.lock": LOCK}, {}, None, False),
        ({"requirements.txt": "torch"}, {}, None, False),
    ],
)
def test_early_stopping_that_no_value_can_reach_is_refused_before_the_build(files, changes, image, refused):
    space = replace(SPACE, **{"stopping": StoppingRule(name="asha")} | changes)
    settings = SETTINGS.model_copy(update={"metrics_reader_image": image})
    source = replace(ORDER.source, files={"pyproject.toml": '[project]\nname = "digits"'} | files)
    with pytest.raises(UserError, match="no mlflow") if refused else nullcontext():
        plan(replace(ORDER, space=space, source=source), settings)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("python train.py --note 'unclosed", "unclosed quote"),
        ("python train.py # fast", "without a comment"),
        ("python train.py\necho done", "one line"),
        ("python train.py --n ${trialSpec.Name}", "placeholders"),
        ("python train.py | tee log.txt", "end with the training"),
        ("python train.py 2>&1 | tee -a log.txt", "end with the training"),
        ("python train.py; echo done", "end with the training"),
        ("python train.py || true", "end with the training"),
        ("python train.py &", "end with the training"),
        ("python train.py & wait", "end with the training"),
        ("python train.py | grep loss", "end with the training"),
        ("bash -lc 'source env && python train.py'", "must pass on its flags"),
        ('cd src && /bin/sh -e -c "python train.py $@"', "must pass on its flags"),
    ],
)
def test_plan_rejects_commands_that_break_the_wrapper(command, complaint):
    with pytest.raises(UserError, match=complaint):
        check_command(replace(SPACE, command=command))


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("set -e; cd src && python train.py", FlagStyle.DOTS),
        ("yes | python train.py > log.txt 2>&1", FlagStyle.DOTS),
        ("python train.py --note='a; echo b' --then \"| tee\" --at=$(date | tee x)", FlagStyle.DOTS),
        ("python train.py 2>& 1", FlagStyle.DOTS),
        ("echo", FlagStyle.DOTS),
        ("bash -c 'python train.py \"$@\"' _", FlagStyle.DOTS),
        ('bash -c \'python train.py "$0" "$@"\'', FlagStyle.DOTS),
        ("bash -c 'make data' && python train.py", FlagStyle.DOTS),
        ("bash -c 'python train.py'", FlagStyle.ENV),
        ("python train.py | tee log.txt", FlagStyle.ENV),
    ],
)
def test_plan_accepts_commands_whose_last_program_gets_the_parameters(command, flags):
    check_command(replace(SPACE, command=command, flags=flags))


@pytest.mark.parametrize(
    ("command", "code", "marker"),
    [("true", 0, True), ("exec true", 0, True), ("false", 1, False), ("sh -c 'exit 7' _", 7, False)],
)
def test_wrapped_command_keeps_its_exit_code_and_marks_only_success(command, code, marker, tmp_path):
    """What Katib appends, run by a real shell as the kubelet would: `$$` is `$` by then."""
    made = plan(replace(ORDER, space=replace(SPACE, command=command)), SETTINGS)
    pod = made.experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    line = pod["containers"][0]["args"][0].replace("$$", "$")
    file = tmp_path / "marker"
    done = subprocess.run(["sh", "-c", f"{line} && echo completed > {file}"], check=False)
    assert (done.returncode, file.exists()) == (code, marker)


def test_command_line_can_be_pasted_and_ids_fit_and_are_deterministic_per_request():
    line = command_line(SPACE, {"lr": "0.003", "name": "it's"})
    assert line == """python train.py --lr=0.003 '--name=it'"'"'s'"""
    ids = list(candidates("a-very-long-experiment-name-indeed", "trigger-1"))
    assert ids == list(candidates("a-very-long-experiment-name-indeed", "trigger-1"))
    assert len(set(ids)) == len(ids) == 8
    assert max(map(len, ids)) <= 27


@pytest.mark.parametrize("head", ["lr", "2024_grid", "x" * 60, "Ünïcode", "_", "-"])
def test_id_is_a_valid_experiment_name(head):
    for sweep_id in candidates(head, "seed"):
        assert len(sweep_id) <= 27
        assert sweep_id[0].isalpha()
        assert sweep_id.replace("-", "").isalnum()
        assert sweep_id == sweep_id.lower()
        assert sweep_id.isascii()
