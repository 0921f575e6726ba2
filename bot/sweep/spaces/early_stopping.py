"""Read `early_stopping:` of a space: Sweepbot's asha and median, their settings and defaults, and Katib's
medianstop, refused where a space's command doesn't support it. Pure.
"""

import shlex
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from bot.core.space import MetricSource
from bot.core.stopping import ASHA, MEDIAN, StoppingRule
from bot.platform.config.rules import Key, Schema
from bot.platform.config.section import Section, json_schema, read_each
from bot.platform.config.value_types import Flag, Text, Whole
from bot.platform.config.yaml_reader import Node
from bot.text.wording import listed, shortened

MEDIANSTOP = "medianstop"
STOPPERS = (ASHA, MEDIAN, MEDIANSTOP)
DEFAULT_GRACE, DEFAULT_FACTOR = 5, 2  # measured: bench/RESULTS.md, "Early stopping"
STOPPER_SETTINGS = {
    ASHA: {"grace_period", "reduction_factor", "dry_run"},
    MEDIAN: {"grace_period", "min_trials_required", "dry_run"},
    MEDIANSTOP: {"min_trials_required", "start_step"},
}
DEFAULT_SETTINGS = {"min_trials_required": 3, "start_step": 4}  # Katib's
REJECTED_STOPPERS = {
    "hyperband": "stops after its first bracket in Katib (kubeflow/katib#1168); use asha",
}


def _stopper(name: str) -> str:
    if name not in STOPPERS:
        why = REJECTED_STOPPERS.get(name, f"is unknown; use {listed(STOPPERS, 'or')}")
        raise ValueError(f"{shortened(name)} {why}")
    return name


@dataclass(frozen=True, kw_only=True)
class EarlyStopping(Section):
    name: Annotated[
        Text, AfterValidator(_stopper), WithJsonSchema({"enum": [*STOPPERS]}), Key(ASHA, required=True)
    ] = ""
    """The algorithm."""
    grace_period: Annotated[Whole, Key("5", least=1)] = DEFAULT_GRACE
    """For `asha` and `median`: steps before a trial is judged for the first time."""
    reduction_factor: Annotated[Whole, Key("4", least=2)] = DEFAULT_FACTOR
    """For `asha`: one in this many trials continues; also the factor between the steps at which trials are
    judged."""
    dry_run: Annotated[Flag, Key("true")] = False
    """For `asha` and `median`: stop nothing, and report what would have been stopped."""
    min_trials_required: Annotated[Whole, Key("5", least=1)] = DEFAULT_SETTINGS["min_trials_required"]
    """For `median` and `medianstop`: trials to compare with before one can be stopped."""
    start_step: Annotated[Whole, Key("10", least=1)] = DEFAULT_SETTINGS["start_step"]
    """For `medianstop`: report of the metric at which a trial is judged, once."""


def early_stopping_schema() -> Schema:
    title = "`asha`, `median`, `medianstop`, or mapping"
    return {"title": title, "anyOf": [{"enum": [*STOPPERS]}, json_schema(EarlyStopping)]}


def read_early_stopping(
    node: Node | None, source: MetricSource, command: str, trials: int
) -> dict[str, str] | StoppingRule | None:
    """Return the settings of medianstop as Katib takes them, or Sweepbot's own rule; None: off."""
    if node is None:
        return None
    file, keys = read_each(EarlyStopping, node, short="name")
    for key in sorted(keys.keys() - {"name"} - STOPPER_SETTINGS.get(file.name, keys.keys())):
        known = listed(sorted(STOPPER_SETTINGS[file.name]))
        keys[key].error(f"isn't a setting of {file.name}, which has {known}")
    if file.name in {ASHA, MEDIAN}:
        return _own_rule(node, file, trials)
    settings = {key: str(getattr(file, key)) for key in DEFAULT_SETTINGS if key in keys}
    if file.name == MEDIANSTOP and (why := _objection(source, command, trials, settings)):
        node.error(why)
    return settings


def _own_rule(node: Node, file: EarlyStopping, trials: int) -> StoppingRule:
    rule = StoppingRule(
        name=file.name,
        grace=file.grace_period,
        factor=file.reduction_factor,
        min_trials=file.min_trials_required,
        dry_run=file.dry_run,
    )
    required = rule.factor if rule.name == ASHA else rule.min_trials + 1
    if required > trials:
        which = "reduction_factor" if rule.name == ASHA else "min_trials_required"
        node.error(f"{rule.name} needs at least {required} trials ({which}) to stop one; got {trials}")
    return rule


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
