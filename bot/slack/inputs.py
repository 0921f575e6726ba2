"""Build the inputs of forms, and read what was entered."""

from collections.abc import Mapping
from typing import Any

from bot.slack.blocks import Block, plain_text
from bot.slack.mrkdwn import direct, place


def input_block(block: str, label: str, element: Block, *, optional: bool = False) -> Block:
    return {
        "type": "input",
        "block_id": block,
        "label": plain_text(label),
        "element": element,
        "optional": optional,
    }


def text_box(placeholder: str, most: int = 100, **more: Any) -> Block:
    box: Block = {"type": "plain_text_input", "action_id": "value", "max_length": most} | more
    return box | {"placeholder": plain_text(placeholder)}


def value_of(state: dict[str, Any]) -> str:
    chosen = state.get("selected_option") or {}
    return str(chosen.get("value") or state.get("value") or "").strip()


def where_shown(what: str, channel: str) -> str:
    where = f"in {place(channel)}" if not direct(channel) else "in your direct messages"
    return f"The {what}'s message appears {where}."


def user_name(user: Mapping[str, str]) -> str:
    """Return the name in an interaction's `user`; "" without one."""
    return user.get("username") or user.get("name", "")
