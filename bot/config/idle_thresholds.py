"""Read idle-GPU warning thresholds: `warnings:` of the configuration and `watch:` of a space file.

Their defaults are in `bot.core.thresholds`.
"""

from bot.config.keys import Key, Keys, Schema, number
from bot.config.yaml_reader import Node
from bot.core.thresholds import IdleThresholds

MIN_THRESHOLD = 0.1
MINUTES_PER_DAY = 24 * 60
DEFAULT_THRESHOLDS = IdleThresholds()


def _or_off(most: float) -> Schema:
    return {"anyOf": [{"const": 0}, number(MIN_THRESHOLD, most)]}


def _key(meaning: str, default: float, example: str, most: float = MINUTES_PER_DAY) -> Key:
    return Key(meaning=meaning, type=_or_off(most), default=f"{default:g}", example=example)


# Samples are kept for two hours, so longer windows would miss some.
THRESHOLD_KEYS: Keys = {
    "idle_minutes": _key(
        "Minutes without any GPU work before a warning; repeated after twice and four times that.",
        DEFAULT_THRESHOLDS.idle_minutes,
        "60",
        most=120,
    ),
    "first_use_minutes": _key(
        "Minutes from the start in which GPUs must be used for the first time.",
        DEFAULT_THRESHOLDS.first_use_minutes,
        "45",
    ),
    "low_percent": _key(
        "Mean utilization over two hours, in percent, below which a warning is sent.",
        DEFAULT_THRESHOLDS.low_percent,
        "5",
        most=100,
    ),
    "stuck_minutes": _key(
        "Minutes of full utilization without a new log line before a warning.",
        DEFAULT_THRESHOLDS.stuck_minutes,
        "0",
    ),
}


def read_watch(node: Node | None) -> dict[str, float]:
    """Return the thresholds that the file sets; a space file's override the configuration's."""
    keys = node.mapping(THRESHOLD_KEYS) if node else {}
    return {
        name: _number(THRESHOLD_KEYS[name], each) for name, each in keys.items() if name in THRESHOLD_KEYS
    }


def _number(key: Key, node: Node) -> float:
    value, most = float(node.number()), key.type["anyOf"][1]["maximum"]
    if value and not MIN_THRESHOLD <= value <= most:
        node.error(f"must be 0 (off), or from {MIN_THRESHOLD} to {most}; got {value:g}")
    return value
