"""Volumes, variables, and Secrets that a space file can name, and the volume for outputs. Pure."""

import re
from dataclasses import dataclass

from bot.config.keys import NAMESPACE_NAME, OBJECT_NAME, Key, Keys, list_of, string
from bot.config.trial_pods import VOLUME_KEYS, read_name, read_volume
from bot.config.yaml_reader import Node, entries, matching
from bot.text.wording import did_you_mean, shortened
from k8s.katib.pod_shape import SecretVariables, Volume

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# Variables that Sweepbot or Katib sets, and those that change which program runs, or on which GPUs.
OWN = re.compile(
    r"MLFLOW_.*|SWEEPBOT_.*|KATIB_.*|PYTHONUNBUFFERED|HOME|USER|PATH|LD_.*|NVIDIA_VISIBLE_DEVICES"
)
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
FLAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
PLAIN_PATH = re.compile(r"(/[A-Za-z0-9_.-]+)+")  # nothing that is special in a shell
TEAMS = Key(
    meaning="Teams whose members can use it.",
    type=list_of(string("team", NAMESPACE_NAME.pattern)),
    default="everyone",
    example="[vision]",
)
VOLUME_NAME_KEYS: Keys = {**VOLUME_KEYS, "teams": TEAMS}
SECRET_KEYS: Keys = {
    "secret": Key(
        meaning="Secret in the trials' namespace.",
        type=string("name", OBJECT_NAME.pattern),
        example="wandb-login",
        required=True,
    ),
    "keys": Key(
        meaning="Keys of the Secret, each of which becomes a variable of the same name.",
        type=list_of(string("variable", VARIABLE.pattern)),
        example="[WANDB_API_KEY]",
        required=True,
    ),
    "teams": TEAMS,
}
OUTPUT_KEYS: Keys = {
    "claim": Key(
        meaning="PersistentVolumeClaim in the trials' namespace. Trials write to `SWEEP/TRIAL` in it, so it "
        "must be writable for their user, and `ReadWriteMany` if they run on several nodes.",
        type=string("name", OBJECT_NAME.pattern),
        example="checkpoints",
        required=True,
    ),
    "at": Key(
        meaning="Mount path of letters, digits, dots, dashes, and underscores.",
        type=string("path", PLAIN_PATH.pattern),
        example="/ckpt",
        required=True,
    ),
    "flag": Key(
        meaning="Flag that passes the directory to every trial, also in sweeps over seeds.",
        type=string("name", FLAG.pattern),
        default="none, unless the space file sets `output_flag`",
        example="output_dir",
    ),
}


@dataclass(frozen=True, kw_only=True)
class AllowedVolume:
    name: str
    volume: Volume
    teams: tuple[str, ...] = ()  # whose members can use it; empty: everyone


@dataclass(frozen=True, kw_only=True)
class AllowedSecret:
    name: str
    variables: SecretVariables
    teams: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Output:
    """The volume with a directory for each trial, which outlives the trial's pod."""

    volume: Volume
    flag: str = ""  # that every trial gets; "": only where the space file asks for it


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """What a space file can add to the pods of its trials; nothing else can be reached."""

    volumes: tuple[AllowedVolume, ...] = ()
    env: tuple[str, ...] = ()
    secrets: tuple[AllowedSecret, ...] = ()
    output: Output | None = None


def read_allowed(keys: dict[str, Node], teams: list[str]) -> Allowed:
    """Read `volumes`, `env`, `secrets`, and `output`. `teams`: the names of all teams."""
    volumes, secrets = _named(keys.get("volumes")), _named(keys.get("secrets"))
    return Allowed(
        volumes=tuple(_volume(name, each, teams) for name, each in volumes.items()),
        env=tuple(_variable(each) for each in entries(keys.get("env"))),
        secrets=tuple(_secret(name, each, teams) for name, each in secrets.items()),
        output=_output(keys["output"]) if "output" in keys else None,
    )


def _named(node: Node | None) -> dict[str, Node]:
    found = node.mapping() if node else {}
    for name, each in found.items():
        if not NAME.fullmatch(name):
            each.error(
                "name must have only lowercase letters, digits, dots, dashes, and underscores; got "
                f'"{shortened(name)}"'
            )
    return found


def _volume(name: str, node: Node, teams: list[str]) -> AllowedVolume:
    keys = node.mapping(VOLUME_NAME_KEYS)
    return AllowedVolume(name=name, volume=read_volume(keys), teams=_teams(keys.get("teams"), teams))


def _secret(name: str, node: Node, teams: list[str]) -> AllowedSecret:
    keys = node.mapping(SECRET_KEYS)
    variables = SecretVariables(
        name=read_name(keys.get("secret"), "a Secret"),
        keys=tuple(_variable(each) for each in entries(keys.get("keys"))),
    )
    return AllowedSecret(name=name, variables=variables, teams=_teams(keys.get("teams"), teams))


def _variable(node: Node) -> str:
    name = node.text()
    if name and not VARIABLE.fullmatch(name):
        node.error(f'must be the name of an environment variable; got "{shortened(name)}"')
    elif OWN.fullmatch(name):
        node.error(f"{name} can't be allowed: Sweepbot or the image sets it")
    return name


def _teams(node: Node | None, known: list[str]) -> tuple[str, ...]:
    for each in entries(node):
        if each.text() not in known:
            each.error(f'must be a name under `teams`; got "{each.raw}".{did_you_mean(each.raw, known)}')
    return tuple(each.raw for each in entries(node))


def _output(node: Node) -> Output:
    keys = node.mapping(OUTPUT_KEYS)
    volume = read_volume(keys)
    if "at" in keys and not PLAIN_PATH.fullmatch(volume.at):
        keys["at"].error("must be an absolute path of letters, digits, dots, dashes, and underscores")
    return Output(volume=volume, flag=read_flag(keys.get("flag")))


def read_flag(node: Node | None) -> str:
    """Return the name of a flag without its dashes; "" if it isn't set."""
    return matching(node, FLAG, "the name of a flag without its dashes, such as output_dir")
