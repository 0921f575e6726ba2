"""When GPUs that do nothing are worth a word: `warnings:` of the configuration, `watch:` of a space file."""

from dataclasses import fields

from bot.document import Node
from bot.models import Watch

KEYS = tuple(each.name for each in fields(Watch))
LONGEST = 24 * 60  # minutes; nobody remembers more than a day


def read_watch(node: Node | None) -> dict[str, float]:
    """What the file says, and nothing else: a space's words stand above the configuration's."""
    keys = node.mapping(KEYS) if node else {}
    return {key: _number(key, each) for key, each in keys.items() if key in KEYS}


def _number(key: str, node: Node) -> float:
    number, most = float(node.number()), 100 if key.endswith("percent") else LONGEST
    if not 0 <= number <= most:
        node.wrong(f"must be from 0 (never) to {most}")
    return number
