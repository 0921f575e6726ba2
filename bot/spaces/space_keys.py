"""The keys of a space file, with their meaning and limits. Pure."""

import re
from dataclasses import replace

from bot.config.idle_thresholds import THRESHOLD_KEYS
from bot.config.keys import (
    BOOLEAN,
    MAPPING,
    SCALAR,
    STRING,
    Key,
    Keys,
    Schema,
    integer,
    list_of,
    named,
    number,
    object_schema,
    one_of,
    string,
)
from bot.config.policy_keys import A_MINUTE, MAX_HOURS, TENSORBOARD_TAG
from bot.core.flags import FlagStyle
from bot.core.space import ALGORITHMS, STRATEGIES, Goal, MetricSource
from bot.spaces.additions import ADDITION_KEYS
from bot.spaces.algorithms import ALGORITHM
from bot.spaces.early_stopping import EARLY_STOPPING

DEFAULT_TRIALS, DEFAULT_PARALLEL, DEFAULT_MAX_FAILED = 12, 4, 3  # defaults
# Flags with another meaning: ours, draccus' (a config file), and the name Katib gives a trial's name.
RESERVED = {"tensorboard_dir", "config_path", "trialName"}
PARAMETER_VALUE = re.compile(r"[A-Za-z0-9_.,:/+=@-]+")  # Katib inserts values unescaped
TAG = TENSORBOARD_TAG  # of TensorBoard
METRIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,99}")
FILE_PATH = re.compile(r"/[A-Za-z0-9_./-]{1,200}")
FIXED = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

RESOURCES = ("resources", "memory", "mem", "cpu", "cpus")  # never set for one sweep
AT_START = ("gpus", "profile", "queue", "priority", "cluster", "notify", "gate", "repo", "branch", "seeds")

VALUES: Schema = {
    "type": "array",
    "minItems": 1,
    "uniqueItems": True,
    "items": {
        "type": ["string", "number", "boolean", "array"],
        "pattern": f"^(?:{PARAMETER_VALUE.pattern})$",
    },
}
GROUP: Schema = {"type": "object", "not": {"anyOf": [{"required": [key]} for key in ("min", "max")]}}
WATCH_KEYS: Keys = {
    name: replace(key, default=f"`warnings.{name}` of the configuration")
    for name, key in THRESHOLD_KEYS.items()
}
STRATEGY: Schema = one_of(*STRATEGIES)
STRATEGY_BY_METRIC: Schema = {"type": "object", "additionalProperties": STRATEGY}
SOURCE: Schema = one_of(*MetricSource)
METRICS_KEYS: Keys = {
    "from": Key(
        meaning="Where the training writes the metrics ([details](search.md#metrics)).",
        type=SOURCE,
        example="stdout",
        required=True,
    ),
    "path": Key(
        meaning="Absolute path of the file, in a directory of its own. Only for `file`.",
        type=string("path", FILE_PATH.pattern),
        example="/logs/metrics.txt",
    ),
}
OBJECTIVE_KEYS: Keys = {
    "metric": Key(
        meaning="Metric to optimize. In TensorBoard, no other tag can start with this name.",
        type=string("name", METRIC_NAME.pattern),
        example="val_loss",
        required=True,
    ),
    "goal": Key(
        meaning="Direction of the optimization.", type=one_of(*Goal), example="minimize", required=True
    ),
    "additional": Key(
        meaning="More metrics to show in the results.",
        type=list_of(string("name", METRIC_NAME.pattern)),
        default="none",
        example="[accuracy]",
    ),
    "strategy": Key(
        meaning="Which of a trial's values counts, for the objective's metric, or by metric.",
        type={"title": "`min`, `max`, `latest`, or mapping", "anyOf": [STRATEGY, STRATEGY_BY_METRIC]},
        default="`min` to minimize, `max` to maximize",
        example="latest",
    ),
    "target": Key(meaning="Value at which the sweep stops.", type=number(), default="none", example="0.02"),
}
TRIAL_KEYS: Keys = {
    "max": Key(
        meaning="Total number of trials. `trials=` overrides it.",
        type=integer(1),
        default=f"{DEFAULT_TRIALS}; for `grid`, all combinations",
        example="20",
    ),
    "parallel": Key(
        meaning="Number of trials that run at the same time. `parallel=` overrides it.",
        type=integer(1),
        default=str(DEFAULT_PARALLEL),
        example="8",
    ),
    "max_failed": Key(
        meaning="Number of failed trials at which the sweep fails.",
        type=integer(0),
        default=str(DEFAULT_MAX_FAILED),
        example="1",
    ),
    "trial_hours": Key(
        meaning="Maximum run time of one trial, in hours. Sweepbot stops it after that.",
        type=number(A_MINUTE, MAX_HOURS),
        default="`limits.trial_hours`",
        example="2",
    ),
    "max_hours": Key(
        meaning="Maximum hours of the whole sweep, since its first trial's start. Then no new trials start, "
        "and the sweep ends once running trials finish. `max_hours=` overrides it.",
        type=number(A_MINUTE, MAX_HOURS),
        default="no limit",
        example="12",
    ),
    "grace_seconds": Key(
        meaning="Seconds from SIGTERM to SIGKILL, to write a checkpoint.",
        type=integer(1),
        default="`trials.grace_seconds` of the configuration",
        example="120",
    ),
}
RANGE_KEYS: Keys = {
    "min": Key(
        meaning="Smallest value. The range has whole numbers if all its numbers are whole.",
        type=number(),
        example="1e-4",
        required=True,
    ),
    "max": Key(meaning="Largest value.", type=number(), example="1e-1", required=True),
    "step": Key(meaning="Distance between values.", type=number(), default="none", example="0.1"),
    "scale": Key(
        meaning="Scale on which values are sampled.",
        type=one_of("linear", "log"),
        default="linear",
        example="log",
    ),
}
KEYS: Keys = {
    "command": Key(
        meaning="Command of a trial, one line. `--NAME=VALUE` is appended for each parameter. "
        "`cmd=` overrides it.",
        type=STRING,
        example="python train.py",
        required=True,
    ),
    "objective": Key(
        meaning="What the trials optimize.",
        type=MAPPING,
        example="{metric: val_loss, goal: minimize}",
        required=True,
        keys=OBJECTIVE_KEYS,
    ),
    "metrics": Key(
        meaning="Where the training writes the metrics: the source, or a mapping. `metrics=` overrides it.",
        type={"title": "source, or mapping", "anyOf": [SOURCE, object_schema(METRICS_KEYS)]},
        default="tensorboard",
        example="{from: file, path: /logs/metrics.txt}",
    ),
    "flags": Key(
        meaning="How parameters are passed ([details](search.md#pass-parameters)). `flags=` overrides it.",
        type=one_of(*FlagStyle, "hydra"),
        default=FlagStyle.DOTS.value,
        example="a.b=1",
    ),
    "booleans": Key(
        meaning="How `true` and `false` are passed: as a value, or as a bare flag and nothing.",
        type=one_of("value", "switch"),
        default="value",
        example="switch",
    ),
    "algorithm": Key(
        meaning="Search algorithm, or a mapping with its `name` and [settings](search.md). "
        "`algorithm=` overrides it.",
        type=ALGORITHM,
        default=ALGORITHMS[0],
        example="{name: tpe, random_state: 1}",
    ),
    "early_stopping": Key(
        meaning="Stop trials that are worse than earlier ones ([details](search.md#early-stopping)).",
        type=EARLY_STOPPING,
        default="none",
        example="{name: asha, grace_period: 5}",
    ),
    "trials": Key(meaning="Number and limits of the trials.", type=MAPPING, keys=TRIAL_KEYS),
    "parameters": Key(
        meaning="Parameters by name: a list of values, a range, a fixed value, or a mapping of parameters.",
        type=named(PARAMETER_NAME) | {"minProperties": 1},
        example="{optimizer: [adam, sgd]}",
        required=True,
        keys=RANGE_KEYS,
        alternative={"anyOf": [VALUES, SCALAR, GROUP]},
    ),
    "description": Key(
        meaning="One line, shown in the form's menu.",
        type=STRING,
        default="the file's first comment",
        example="learning rate and depth",
    ),
    "running_at_target": Key(
        meaning="What happens to running trials when `target` is reached.",
        type=one_of("end", "finish"),
        default="end",
        example="finish",
    ),
    "extendable": Key(
        meaning="Keep the suggestion service (one pod without a GPU) for more than a day after the end, so "
        "that trials can be added until the sweep is deleted.",
        type=BOOLEAN,
        default="false",
        example="true",
    ),
    "nodes": Key(
        meaning="Nodes of one trial, each with the requested GPUs "
        "([details](machines.md#run-a-trial-on-several-machines)). `nodes=` overrides it.",
        type=integer(1),
        default="`nodes_per_trial` of the profile, else 1",
        example="4",
    ),
    "image": Key(
        meaning="Prebuilt image to run in, without a build. `image=` overrides it.",
        type=STRING,
        default="none",
        example="pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime",
    ),
    **ADDITION_KEYS,
    "watch": Key(
        meaning="Idle-GPU warning thresholds of this sweep. 0 turns a warning off.",
        type=MAPPING,
        keys=WATCH_KEYS,
    ),
}
# Keys that people look for at the top of the file, and where they are set.
ELSEWHERE = dict.fromkeys(TRIAL_KEYS, "Set it under `trials:`.")
ELSEWHERE |= dict.fromkeys(OBJECTIVE_KEYS, "Set it under `objective:`.")
ELSEWHERE |= dict.fromkeys(RESOURCES, "CPU and memory come with `gpus=` or `profile=` of the command.")
ELSEWHERE |= {key: f"Set it in the command: `/sweep … {key}=`." for key in AT_START}
