"""Read early stopping: Katib's medianstop, and when a space can have it. Pure."""

import shlex

from bot.config.keys import Key, Keys, Schema, integer, object_schema, one_of
from bot.config.yaml_reader import Node
from bot.core.space import MetricSource
from bot.core.wording import shortened

MEDIANSTOP = "medianstop"
DEFAULT_SETTINGS = {"min_trials_required": 3, "start_step": 4}  # Katib's
EARLY_STOPPING_KEYS: Keys = {
    "name": Key(meaning="The algorithm.", type=one_of(MEDIANSTOP), example=MEDIANSTOP, required=True),
    "min_trials_required": Key(
        meaning="Finished trials before others can be stopped.",
        type=integer(1),
        default=str(DEFAULT_SETTINGS["min_trials_required"]),
        example="5",
    ),
    "start_step": Key(
        meaning="Report of the metric at which a trial is judged, once.",
        type=integer(1),
        default=str(DEFAULT_SETTINGS["start_step"]),
        example="10",
    ),
}
EARLY_STOPPING: Schema = {
    "title": "`medianstop`, or mapping",
    "anyOf": [one_of(MEDIANSTOP), object_schema(EARLY_STOPPING_KEYS)],
}
REJECTED_STOPPERS = {
    "hyperband": "stops after its first bracket in Katib (kubeflow/katib#1168); use medianstop",
    "asha": "isn't offered; use medianstop",
    "median": "isn't offered; use medianstop",
}


def read_early_stopping(
    node: Node | None, source: MetricSource, command: str, trials: int
) -> dict[str, str] | None:
    """Return the settings as Katib takes them; None without early stopping."""
    if node is None:
        return None
    keys = node.mapping(EARLY_STOPPING_KEYS) if isinstance(node.value, dict) else {"name": node}
    name = keys["name"].text() if "name" in keys else MEDIANSTOP
    if name and name != MEDIANSTOP:
        why = REJECTED_STOPPERS.get(name, "is unknown; use medianstop")
        keys["name"].error(f"{shortened(name)} {why}")
    settings = {key: str(_whole(keys[key])) for key in DEFAULT_SETTINGS if key in keys}
    if why := _objection(source, command, trials, settings):
        node.error(why)
    return settings


def _whole(node: Node) -> int:
    before = len(node.errors)
    value = node.whole()
    if len(node.errors) == before and value < 1:
        node.error(f"must be at least 1; got {value}")
    return value


def _objection(source: MetricSource, command: str, trials: int, settings: dict[str, str]) -> str:
    if source not in {MetricSource.STDOUT, MetricSource.FILE}:
        return (
            f"medianstop reads lines while a trial runs, and can't with metrics from {source}. Set metrics: "
            "stdout, or a file."
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
