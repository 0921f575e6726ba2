"""What a space file adds to its trials' pods: volumes, variables, Secrets, and an output directory. Pure.

Whether the configuration allows it is decided in `bot.launch.pods`.
"""

from dataclasses import dataclass, field

from bot.config.allowed import FLAG, NAME, VARIABLE, read_flag
from bot.config.keys import SCALAR, Key, Keys, list_of, string
from bot.config.yaml_reader import Node, entries
from bot.text.wording import shortened

MAX_VALUE = 1000  # characters of a variable
ADDITION_KEYS: Keys = {
    "volumes": Key(
        meaning="Volumes to mount: names under `volumes` of the configuration.",
        type=list_of(string("name", NAME.pattern)),
        default="none",
        example="[datasets]",
    ),
    "env": Key(
        meaning="Environment variables, of those under `env` of the configuration.",
        type={"type": "object", "additionalProperties": SCALAR},
        default="none",
        example="{WANDB_PROJECT: digits}",
    ),
    "secrets": Key(
        meaning="Secrets to pass as environment variables: names under `secrets` of the configuration.",
        type=list_of(string("name", NAME.pattern)),
        default="none",
        example="[wandb]",
    ),
    "output_flag": Key(
        meaning="Flag, without dashes, that passes each trial a directory that outlives its pod "
        "([details](checkpoints.md)).",
        type=string("name", FLAG.pattern),
        default="`output.flag` of the configuration",
        example="output_dir",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Additions:
    volumes: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    output_flag: str = ""


def read_additions(keys: dict[str, Node]) -> Additions:
    return Additions(
        volumes=_names(keys.get("volumes")),
        env=_variables(keys.get("env")),
        secrets=_names(keys.get("secrets")),
        output_flag=read_flag(keys.get("output_flag")),
    )


def _names(node: Node | None) -> tuple[str, ...]:
    """Return the names, each once."""
    return tuple(dict.fromkeys(each.text() for each in entries(node)))


def _variables(node: Node | None) -> dict[str, str]:
    found = node.mapping() if node else {}
    for name, each in found.items():
        if not VARIABLE.fullmatch(name):
            each.error("must be the name of an environment variable")
        elif isinstance(each.value, dict | list):
            each.error("must be text")
        elif len(each.raw) > MAX_VALUE or not each.raw.isprintable() or "${trial" in each.raw:
            each.error(
                f"must be up to {MAX_VALUE} printable characters on one line, without Katib's placeholders; "
                f'got "{shortened(each.raw)}"'
            )
    return {name: each.raw for name, each in found.items()}
