"""What a team and a space add to the pods of a sweep, and what neither can."""

from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.space import command_line
from bot.platform.config.policy import parse_config
from bot.sweep.launch.plan import plan
from bot.sweep.launch.pods import namespace_of, pods_of, with_output
from bot.sweep.spaces.describe import as_yaml, first_values, launch_flags
from bot.sweep.spaces.space import parse_space
from tests.bot.factories import CONFIG, ORDER, OWNER, REQUEST, SETTINGS
from tests.cases import cases

TEXT = """\
repositories: {digits: {url: https://git.example/digits.git}}
namespaces: [vision]
teams:
  vision:
    members: [UOWNER]
    namespace: vision
    nodes: {team: vision}
    tolerations: [{key: team, value: vision}]
volumes:
  datasets: {claim: datasets, at: /data, read_only: true}
  faces: {claim: faces, at: /faces, teams: [vision]}
env: [HF_HOME]
secrets:
  wandb: {secret: wandb-login, keys: [WANDB_API_KEY], teams: [vision]}
output: {claim: checkpoints, at: /ckpt}
"""
CLUSTER = parse_config(TEXT, "c.yaml")
SPACE = """\
command: python train.py
objective: {metric: loss, goal: minimize}
parameters: {lr: [1, 2]}
"""
ALL = "volumes: [datasets, faces]\nenv: {HF_HOME: /data/$hf}\nsecrets: [wandb]\noutput_flag: output_dir\n"
TRIAL = "${trialParameters.trialName}"


def space_of(more=""):
    return parse_space(SPACE + more, "lr.yaml", REQUEST, CLUSTER.limits)


def pod_of(more="", owner=OWNER, config=CLUSTER):
    space = with_output(space_of(more), ORDER.sweep, config)
    pods = pods_of(REQUEST, space, owner, config)
    order = replace(ORDER, space=space, shape=pods.shape, secrets=pods.secrets)
    return plan(order, SETTINGS).experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]


def refused(more, owner=OWNER, config=CLUSTER):
    with pytest.raises(UserError) as caught:
        pod_of(more, owner, config)
    return str(caught.value)


def test_pod_has_what_the_space_names_and_nothing_more():
    pod = pod_of(ALL)
    [main] = pod["containers"]
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in main["volumeMounts"]}
    assert mounts == {"/dev/shm": False, "/data": True, "/faces": False, "/ckpt": False}
    env = {each["name"]: each for each in main["env"]}
    assert env["HF_HOME"]["value"] == "/data/$$hf"
    assert env["WANDB_API_KEY"]["valueFrom"] == {
        "secretKeyRef": {"name": "wandb-login", "key": "WANDB_API_KEY"}
    }
    [main] = pod_of()["containers"]
    assert [each["mountPath"] for each in main["volumeMounts"]] == ["/dev/shm"]
    assert "mkdir" not in main["args"][0]
    space = space_of(ALL)
    again = parse_space(as_yaml(space), "again.yaml", REQUEST, CLUSTER.limits)
    assert (again.volumes, again.env, again.secrets) == (space.volumes, space.env, space.secrets)
    assert again.output_flag == "output_dir"


def test_pod_gets_its_directory_again_and_in_the_style_of_its_flags():
    [line] = pod_of(ALL)["containers"][0]["args"]
    directory = f"/ckpt/{ORDER.sweep}/{TRIAL}"
    assert line.startswith(f"{{ mkdir -p {directory} || exit 1; ")
    assert f"'--output_dir={directory}'" in line
    [main] = pod_of(f"{ALL}flags: env\n")["containers"]
    env = {each["name"]: each.get("value") for each in main["env"]}
    assert env["OUTPUT_DIR"] == f"/ckpt/{ORDER.sweep}/{TRIAL}"
    config = parse_config(TEXT.replace("at: /ckpt", "at: /ckpt, flag: out"), "c.yaml")
    assert f"'--out=/ckpt/{ORDER.sweep}/{TRIAL}'" in pod_of(config=config)["containers"][0]["args"][0]
    space = with_output(space_of(ALL), "lr-brave-otter", CLUSTER)
    line = command_line(space, first_values(space), **launch_flags(space))
    assert "--output_dir=/ckpt/lr-brave-otter/TRIAL" in line


@pytest.mark.parametrize(
    ("more", "owner", "error"),
    [
        (
            "volumes: [dataset]",
            OWNER,
            '"dataset" isn\'t configured, or not for your team. Did you mean datasets?',
        ),
        ("volumes: [faces]", "UOTHER", 'volumes: "faces" isn\'t configured, or not for your team.'),
        ("secrets: [wandb]", "UOTHER", 'secrets: "wandb" isn\'t configured, or not for your team.'),
        (
            "env: {PATH: /x}",
            OWNER,
            "env.PATH: the configuration doesn't allow this variable. Available:",
        ),
        ("output_flag: tensorboard_dir", OWNER, "output_flag: tensorboard_dir has another meaning."),
        ("flags: env\noutput_flag: ld_preload", OWNER, "output_flag: ld_preload has another meaning."),
        ("output_flag: lr", OWNER, "parameters.lr: the output directory is passed as this flag."),
    ],
)
def test_pods_with_something_that_is_not_allowed_are_refused(more, owner, error):
    assert error in refused(more, owner)


def test_pods_with_what_collides_or_is_not_theirs_are_refused():
    config = replace(CLUSTER, self_assigned=frozenset({OWNER}))
    assert "isn't configured, or not for your team" in refused("secrets: [wandb]", config=config)
    assert "nodeSelector" not in pod_of(config=config)
    assert namespace_of(OWNER, "C1", config) == ""
    twice = parse_config(TEXT.replace("at: /faces", "at: /data/"[:-1]), "c.yaml")
    assert "two volumes are mounted at /data" in refused(ALL, config=twice)
    space = replace(space_of(ALL), flags=FlagStyle.ENV, fixed={"hf-home": "x"})
    with pytest.raises(UserError, match="HF_HOME is set twice"):
        pods_of(REQUEST, space, OWNER, CLUSTER)
    assert "the configuration has no `output`" in refused("output_flag: out", config=CONFIG)


def test_pod_of_a_team_runs_on_its_machines_and_its_namespace_yields_to_the_channels():
    pod = pod_of()
    assert pod["nodeSelector"] == {"team": "vision"}
    assert pod["tolerations"] == [{"key": "team", "value": "vision"}]
    assert "nodeSelector" not in pod_of(owner="UOTHER")
    assert namespace_of(OWNER, "C1", CLUSTER) == "vision"
    assert namespace_of(OWNER, "C1", replace(CLUSTER, channel_namespaces={"C1": "nlp"})) == "nlp"
    assert namespace_of("UOTHER", "C1", CLUSTER) == ""


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ("env: {1A: x}", "must be the name of an environment variable"),
        ("env: {HF_HOME: [a]}", "must be text"),
        ('env: {HF_HOME: "a\\nb"}', "printable characters on one line"),
        ('env: {HF_HOME: "${trialParameters.lr}"}', "without Katib's placeholders"),
        ("output_flag: --out", "must be the name of a flag without its dashes"),
        ("volumes: datasets", "must be a list"),
        ("hostNetwork: true", "unknown key"),
    ],
)
def test_space_with_an_invalid_addition_names_it(more, error):
    with pytest.raises(UserError) as caught:
        space_of(more)
    assert error in str(caught.value)


@cases(
    ("text", "error"),
    [
        ("env: [PATH]", "PATH can't be allowed"),
        ("env: [NVIDIA_VISIBLE_DEVICES]", "NVIDIA_VISIBLE_DEVICES can't be allowed"),
        ("env: [MLFLOW_RUN_ID]", "MLFLOW_RUN_ID can't be allowed"),
        ("secrets: {a: {secret: x}}", "missing key: keys"),
        ("volumes: {a: {claim: c, at: /d, teams: [x]}}", 'must be a name under `teams`; got "x"'),
        ("output: {claim: c}", "missing key: at"),
        ("output: {claim: c, at: /d e}", "must be an absolute path of letters"),
        ("output: {claim: c, at: /d, read_only: true}", "unknown key"),
        ("teams: {a: {namespace: b}}", "teams.a.namespace: must be one of `namespaces`; got b"),
        ("teams: {a: {gpus_total: -1}}", "must be at least 0; got -1"),
        ("teams: {a: {queue: A!}}", "must be the name of a LocalQueue"),
    ],
)
def test_configuration_with_an_invalid_allowance_names_it(text, error):
    with pytest.raises(UserError) as caught:
        parse_config(f"repositories: {{d: {{url: https://git.example/d.git}}}}\n{text}", "c.yaml")
    assert error in str(caught.value)
