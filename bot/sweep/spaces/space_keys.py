"""The keys of a space file: type, default, and meaning of each, and where a misplaced one belongs. Pure."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import AfterValidator, WithJsonSchema

from bot.core.flags import FlagStyle
from bot.core.space import ALGORITHMS
from bot.platform.config.allowed import NAME
from bot.platform.config.idle_thresholds import watch_schema
from bot.platform.config.rules import Key, OneOf, Reads, Several, Unread, Via
from bot.platform.config.section import Section, json_schema
from bot.platform.config.value_types import LABELS, VARIABLE, Flag, FlagName, Text, Whole, string
from bot.platform.config.yaml_reader import Node
from bot.sweep.spaces.algorithms import algorithm_schema
from bot.sweep.spaces.early_stopping import early_stopping_schema
from bot.sweep.spaces.metrics import Objective, metrics_schema, objective_schema
from bot.sweep.spaces.parameters import parameters_schema
from bot.sweep.spaces.trials import Trials

RESOURCES = ("resources", "memory", "mem", "cpu", "cpus")  # never set for one sweep
AT_START = ("gpus", "profile", "queue", "priority", "cluster", "notify", "gate", "repo", "branch", "seeds")
MAX_VALUE = 1000  # characters of a variable
STYLES = {str(each): each for each in FlagStyle} | {"hydra": FlagStyle.HYDRA}


def _one_line(text: str) -> str:
    if "\n" in text.strip():
        raise ValueError("must be one line")
    return text


def _variables(node: Node) -> dict[str, str]:
    found = node.mapping()
    for name, each in found.items():
        if not VARIABLE.fullmatch(name):
            each.error("must be the name of an environment variable")
        elif isinstance(each.value, dict | list):
            each.error("must be text")
        elif len(each.raw) > MAX_VALUE or not each.raw.isprintable() or "${trial" in each.raw:
            each.error(
                f"must be up to {MAX_VALUE} printable characters on one line, without Katib's placeholders"
            )
    return {name: each.raw for name, each in found.items()}


Names = Annotated[
    Several[Annotated[Text, WithJsonSchema(string("name", NAME.pattern))]],
    AfterValidator(lambda names: tuple(dict.fromkeys(names))),
]


@dataclass(frozen=True, kw_only=True)
class SpaceFile(Section):
    """Whether the configuration allows what trials' pods get is decided in `bot.sweep.launch.pods`."""

    # Keys that people look for at the top of the file, and where they are set.
    elsewhere: ClassVar = (
        dict.fromkeys(Trials.known(), "Set it under `trials:`.")
        | dict.fromkeys(Objective.known(), "Set it under `objective:`.")
        | dict.fromkeys(RESOURCES, "CPU and memory come with `gpus=` or `profile=` of the command.")
        | {key: f"Set it in the command: `/sweep … {key}=`." for key in AT_START}
    )

    command: Annotated[Text, Key("python train.py", required=True)] = ""
    """Command of a trial, one line. `--NAME=VALUE` is appended for each parameter. `cmd=` overrides it."""
    objective: Annotated[
        Node | None,
        Unread(objective_schema),
        Key("{metric: val_loss, goal: minimize}", required=True),
    ] = None
    """What the trials optimize; a list for several objectives ([details](search.md#several-objectives))."""
    metrics: Annotated[
        Node | None, Unread(metrics_schema), Key("{from: file, path: /logs/metrics.txt}", "tensorboard")
    ] = None
    """Where the training writes the metrics: the source, or a mapping. `metrics=` overrides it."""
    flags: Annotated[
        FlagStyle,
        Via(Annotated[Text, OneOf((*STYLES,))], STYLES.__getitem__),
        Key("a.b=1", FlagStyle.DOTS.value),
    ] = FlagStyle.DOTS
    """How parameters are passed ([details](search.md#pass-parameters)). `flags=` overrides it."""
    booleans: Annotated[Text, OneOf(("value", "switch")), Key("switch")] = "value"
    """How `true` and `false` are passed: as a value, or as a bare flag and nothing."""
    algorithm: Annotated[
        Node | None, Unread(algorithm_schema), Key("{name: tpe, random_state: 1}", ALGORITHMS[0])
    ] = None
    """Search algorithm, or a mapping with its `name` and [settings](search.md). `algorithm=` overrides it."""
    early_stopping: Annotated[
        Node | None, Unread(early_stopping_schema), Key("{name: asha, grace_period: 5}", "none")
    ] = None
    """Stop trials that are worse than earlier ones ([details](search.md#early-stopping))."""
    trials: Annotated[Node | None, Unread(lambda: json_schema(Trials)), Key()] = None
    """Number and limits of the trials."""
    parameters: Annotated[
        Node | None, Unread(parameters_schema), Key("{optimizer: [adam, sgd]}", required=True)
    ] = None
    """Parameters by name: a list of values, a range, a fixed value, or a mapping of parameters."""
    description: Annotated[
        Text, AfterValidator(_one_line), Key("learning rate and depth", "the file's first comment")
    ] = ""
    """One line, shown in the form's menu."""
    running_at_target: Annotated[Text, OneOf(("end", "finish")), Key("finish")] = "end"
    """What happens to running trials when `target` is reached."""
    extendable: Annotated[Flag, Key("true")] = False
    """Keep the suggestion service (one pod without a GPU) for more than a day after the end, so that
    trials can be added until the sweep is deleted."""
    nodes: Annotated[Whole | None, Key("4", "`nodes_per_trial` of the profile, else 1", least=1)] = None
    """Nodes of one trial, each with the requested GPUs
    ([details](machines.md#run-a-trial-on-several-machines)). `nodes=` overrides it."""
    image: Annotated[Text, Key("pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime")] = ""
    """Prebuilt image to run in, without a build. `image=` overrides it."""
    volumes: Annotated[Names, Key("[datasets]")] = ()
    """Volumes to mount: names under `volumes` of the configuration."""
    env: Annotated[
        dict[str, str], Reads(_variables), WithJsonSchema(LABELS), Key("{WANDB_PROJECT: digits}")
    ] = field(default_factory=dict)
    """Environment variables, of those under `env` of the configuration."""
    secrets: Annotated[Names, Key("[wandb]")] = ()
    """Secrets to pass as environment variables: names under `secrets` of the configuration."""
    output_flag: Annotated[FlagName, Key("output_dir", "`output.flag` of the configuration")] = ""
    """Flag, without dashes, that passes each trial a directory that outlives its pod
    ([details](checkpoints.md))."""
    watch: Annotated[Node | None, Unread(watch_schema), Key()] = None
    """Idle-GPU warning thresholds of this sweep. 0 turns a warning off."""
