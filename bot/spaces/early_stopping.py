"""Read early stopping: Sweepbot's asha and median, and Katib's medianstop where a space supports it. Pure."""

import shlex
from collections.abc import Mapping

from bot.config.keys import BOOLEAN, Key, Keys, Schema, integer, object_schema, one_of
from bot.config.yaml_reader import Node
from bot.core.space import MetricSource
from bot.core.stopping import ASHA, MEDIAN, StoppingRule
from bot.text.wording import listed, shortened

MEDIANSTOP = "medianstop"
STOPPERS = (ASHA, MEDIAN, MEDIANSTOP)
DEFAULT_RULE = StoppingRule(name=ASHA)
STOPPER_SETTINGS = {
    ASHA: {"grace_period", "reduction_factor", "dry_run"},
    MEDIAN: {"grace_period", "min_trials_required", "dry_run"},
    MEDIANSTOP: {"min_trials_required", "start_step"},
}
DEFAULT_SETTINGS = {"min_trials_required": 3, "start_step": 4}  # Katib's
EARLY_STOPPING_KEYS: Keys = {
    "name": Key(meaning="The algorithm.", type=one_of(*STOPPERS), example=ASHA, required=True),
    "grace_period": Key(
        meaning="For `asha` and `median`: steps before a trial is judged for the first time.",
        type=integer(1),
        default=str(DEFAULT_RULE.grace),
        example="5",
    ),
    "reduction_factor": Key(
        meaning="For `asha`: one in this many trials continues; also the factor between the steps at which "
        "trials are judged.",
        type=integer(2),
        default=str(DEFAULT_RULE.factor),
        example="4",
    ),
    "dry_run": Key(
        meaning="For `asha` and `median`: stop nothing, and report what would have been stopped.",
        type=BOOLEAN,
        default="false",
        example="true",
    ),
    "min_trials_required": Key(
        meaning="For `median` and `medianstop`: trials to compare with before one can be stopped.",
        type=integer(1),
        default=str(DEFAULT_SETTINGS["min_trials_required"]),
        example="5",
    ),
    "start_step": Key(
        meaning="For `medianstop`: report of the metric at which a trial is judged, once.",
        type=integer(1),
        default=str(DEFAULT_SETTINGS["start_step"]),
        example="10",
    ),
}
EARLY_STOPPING: Schema = {
    "title": "`asha`, `median`, `medianstop`, or mapping",
    "anyOf": [one_of(*STOPPERS), object_schema(EARLY_STOPPING_KEYS)],
}
REJECTED_STOPPERS = {
    "hyperband": "stops after its first bracket in Katib (kubeflow/katib#1168); use asha",
}


def read_early_stopping(
    node: Node | None, source: MetricSource, command: str, trials: int
) -> dict[str, str] | StoppingRule | None:
    """Return the settings of medianstop as Katib takes them, or Sweepbot's own rule; None: off."""
    if node is None:
        return None
    keys = node.mapping(EARLY_STOPPING_KEYS) if isinstance(node.value, dict) else {"name": node}
    name = keys["name"].text() if "name" in keys else MEDIANSTOP
    if name and name not in STOPPERS:
        why = REJECTED_STOPPERS.get(name, f"is unknown; use {listed(STOPPERS, 'or')}")
        keys["name"].error(f"{shortened(name)} {why}")
    for key in sorted(
        keys.keys() & EARLY_STOPPING_KEYS.keys() - {"name"} - STOPPER_SETTINGS.get(name, keys.keys())
    ):
        keys[key].error(f"isn't a setting of {name}, which has {listed(sorted(STOPPER_SETTINGS[name]))}")
    if name in {ASHA, MEDIAN}:
        return _own_rule(node, name, keys, trials)
    settings = {key: str(_whole(keys[key])) for key in DEFAULT_SETTINGS if key in keys}
    if name == MEDIANSTOP and (why := _objection(source, command, trials, settings)):
        node.error(why)
    return settings


def _own_rule(node: Node, name: str, keys: Mapping[str, Node], trials: int) -> StoppingRule:
    def setting(key: str, default: int, least: int = 1) -> int:
        return _whole(keys[key], least) if key in keys else default

    rule = StoppingRule(
        name=name,
        grace=setting("grace_period", DEFAULT_RULE.grace),
        factor=setting("reduction_factor", DEFAULT_RULE.factor, least=2),
        min_trials=setting("min_trials_required", DEFAULT_RULE.min_trials),
        dry_run=keys["dry_run"].flag() if "dry_run" in keys else False,
    )
    required = rule.factor if name == ASHA else rule.min_trials + 1
    if required > trials:
        which = "reduction_factor" if name == ASHA else "min_trials_required"
        node.error(f"{name} needs at least {required} trials ({which}) to stop one; got {trials}")
    return rule


def _whole(node: Node, least: int = 1) -> int:
    before = len(node.errors)
    value = node.whole()
    if len(node.errors) == before and value < least:
        node.error(f"must be at least {least}; got {value}")
    return max(value, least)


def _objection(source: MetricSource, command: str, trials: int, settings: dict[str, str]) -> str:
    if source not in {MetricSource.STDOUT, MetricSource.FILE}:
        return (
            f"medianstop reads lines while a trial runs, and can't with metrics from {source}. Set metrics: "
            "stdout, or a file, or use asha."
        )
    if _is_pipeline(command):
        return "medianstop stops the command's last program. Remove | and & from the command."
    required = int(settings.get("min_trials_required", DEFAULT_SETTINGS["min_trials_required"]))
    if required >= trials:
        return f"medianstop needs more than {required} trials (min_trials_required) to stop one; got {trials}"
    return ""


def _is_pipeline(command: str) -> bool:
    """Return whether the training isn't the shell's last program: Katib would stop a shell instead."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    try:
        return any(word in {"|", "&", "|&"} for word in lexer)
    except ValueError:  # an unclosed quote, which is reported elsewhere
        return False


def own_settings(rule: StoppingRule) -> dict[str, str]:
    """Return the settings of Sweepbot's own rule as they are written."""
    written = {
        "grace_period": str(rule.grace),
        "reduction_factor": str(rule.factor),
        "min_trials_required": str(rule.min_trials),
        "dry_run": str(rule.dry_run).lower(),
    }
    return {key: value for key, value in written.items() if key in STOPPER_SETTINGS[rule.name]}
