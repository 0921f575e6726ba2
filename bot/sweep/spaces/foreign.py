"""Recognize sweep files of other tools (W&B, Katib), and build the space's values from theirs, with their
lines. Pure.
"""

import math
from dataclasses import replace
from typing import Any

from bot.platform.config.yaml_reader import Node
from bot.text.number_format import NUMBER


class Notes(list[str]):
    """What a file has that Sweepbot doesn't use, each with its line."""

    def add(self, node: Node, sentence: str) -> None:
        path = f"{node.path}: " if node.path else ""
        self.append(f"line {node.line}: {path}{sentence}")


def present(**found: Node | None) -> dict[str, Node]:
    return {key: node for key, node in found.items() if node is not None}


def scalar(origin: Node, value: Any) -> Node:
    """Return a value at the line of another one."""
    raw = str(value).lower() if isinstance(value, bool) else str(value)
    return replace(origin, value=value, raw=raw)


def holding(origin: Node, values: dict[str, Node] | list[Node]) -> Node:
    """Return a mapping or a list at the line of another value."""
    return replace(origin, value=values, raw="")


def number(node: Node, *, whole: bool | None = None) -> Node:
    """Return a number that may be quoted, as its type wants it; other text stays, to be reported."""
    if isinstance(node.value, bool) or not NUMBER.fullmatch(node.raw) or len(node.raw) > 100:
        return node
    try:
        value: float | int = int(node.raw)
    except ValueError:
        value = float(node.raw)
    if whole is False:
        return replace(node, value=float(value))
    if whole and math.isfinite(value) and value == int(value):
        return replace(node, value=int(value))
    return replace(node, value=value)


def text(node: Node) -> str:
    return node.value if isinstance(node.value, str) else node.raw


def entries(node: Node | None) -> dict[str, Node]:
    """Return a mapping's values; an error for anything else."""
    return dict(node.mapping()) if node else {}


def unknown(rest: dict[str, Node], tool: str) -> None:
    for node in rest.values():
        node.error(f"unknown key of a {tool}. Remove it, or fix its spelling.")


def is_wandb(root: Node) -> bool:
    return isinstance(root.value, dict) and "method" in root.value


def is_katib(root: Node) -> bool:
    keys = root.value if isinstance(root.value, dict) else {}
    if "kind" in keys and "apiVersion" in keys:
        return text(keys["apiVersion"]).startswith("kubeflow.org/")
    parameters = keys["parameters"].value if "parameters" in keys else None
    return isinstance(parameters, list) and "command" not in keys
