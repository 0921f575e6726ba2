"""When GPUs that do nothing are worth a word: `warnings:` of the configuration, `watch:` of a space file."""

from dataclasses import fields

from bot.config.yaml_reader import Node
from bot.core.thresholds import IdleThresholds

KEYS = tuple(each.name for each in fields(IdleThresholds))
LEAST = 0.1
MOST = {"idle_minutes": 120, "low_percent": 100}  # of longer windows not every sample is kept
A_DAY = 24 * 60


def read_watch(node: Node | None) -> dict[str, float]:
    """What the file says, and nothing else: a space's words stand above the configuration's."""
    keys = node.mapping(KEYS) if node else {}
    return {key: _number(key, each) for key, each in keys.items() if key in KEYS}


def _number(key: str, node: Node) -> float:
    number, most = float(node.number()), MOST.get(key, A_DAY)
    if number and not LEAST <= number <= most:
        node.wrong(f"must be 0 (never), or from {LEAST} to {most}")
    return number
