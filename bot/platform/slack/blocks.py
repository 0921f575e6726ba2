"""Build Block Kit elements, and read what was entered in them."""

from collections.abc import Mapping
from typing import Any

from bot.platform.slack.mrkdwn import cut, direct, place
from bot.text.masking import Mask

MAX_OPTIONS = 100  # options of a menu
MAX_OPTION_TEXT, MAX_VALUE = 75, 150  # characters of an option
MAX_BUTTON_VALUE = 2000  # characters
SUBMISSION_DELAY = 0.6  # seconds: an update before Slack has shown the response to the submission is lost
NOTHING = "-"  # the value of an option that selects nothing

Option = dict[str, Any]


def option(value: str, about: str = "", *, text: str = "") -> Option:
    """Build an option; long text is cut in the middle, where names differ least."""
    shown: Option = {"text": _plain(_cut(text or value)), "value": value}
    return shown | ({"description": _plain(about[: MAX_OPTION_TEXT - 1].rstrip())} if about.strip() else {})


def _cut(text: str) -> str:
    half = MAX_OPTION_TEXT // 2
    return text if len(text) <= MAX_OPTION_TEXT else f"{text[:half]}…{text[-half:]}"


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


MAX_SECTION, MAX_FIELD = 3_000, 2_000  # characters

Block = dict[str, Any]
View = dict[str, Any]


def section(text: str, accessory: Block | None = None) -> Block:
    block: Block = {"type": "section", "text": _mrkdwn(cut(text, MAX_SECTION))}
    return block | ({"accessory": accessory} if accessory else {})


def fields(*pairs: tuple[str, str]) -> Block:
    shown = [_mrkdwn(cut(f"*{name}*\n{value}", MAX_FIELD)) for name, value in pairs]
    return {"type": "section", "fields": shown}


def context(text: str) -> Block:
    return {"type": "context", "elements": [_mrkdwn(cut(text, MAX_SECTION))]}


def _mrkdwn(text: str) -> Block:
    """Build text in which Slack doesn't turn URLs and channel names into links."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def header(text: str) -> Block:
    return {"type": "header", "text": plain_text(text[:150])}


def button(action: str, text: str, value: str = "", **more: Any) -> Block:
    shown: Block = {"type": "button", "action_id": action, "text": plain_text(text)}
    return shown | ({"value": value} if value else {}) | more


def actions(*elements: Block) -> Block:
    return {"type": "actions", "elements": list(elements)}


def plain_text(text: str) -> Block:
    return {"type": "plain_text", "text": text}


def modal(title: str, blocks: list[Block], *, close: str = "Close", **more: Any) -> View:
    return {"type": "modal", "title": plain_text(title), "close": plain_text(close), "blocks": blocks, **more}


def form_modal(
    title: str, blocks: list[Block], callback: str, submit: str, metadata: str, close: str = "Cancel"
) -> View:
    """Build a modal with a button to submit it. `metadata` comes back with what was entered."""
    more = {"callback_id": callback, "submit": plain_text(submit), "private_metadata": metadata}
    return modal(title, blocks, close=close, **more)


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


def masked(shown: Any, mask: Mask) -> Any:
    """Return blocks or a view with visible text masked; values, ids, and typed text stay."""
    if isinstance(shown, Mapping):
        return {
            key: cut(mask(each), MAX_SECTION)
            if key == "text" and isinstance(each, str)
            else masked(each, mask)
            for key, each in shown.items()
        }
    return [masked(each, mask) for each in shown] if isinstance(shown, list | tuple) else shown
