"""The few Block Kit parts that views are made of."""

from typing import Any

from bot.mrkdwn import cut

SECTION_MOST, FIELD_MOST = 3_000, 2_000  # characters

Block = dict[str, Any]
View = dict[str, Any]


def section(text: str, accessory: Block | None = None) -> Block:
    block: Block = {"type": "section", "text": _mrkdwn(cut(text, SECTION_MOST))}
    return block | ({"accessory": accessory} if accessory else {})


def fields(*pairs: tuple[str, str]) -> Block:
    shown = [_mrkdwn(cut(f"*{name}*\n{value}", FIELD_MOST)) for name, value in pairs]
    return {"type": "section", "fields": shown}


def context(text: str) -> Block:
    return {"type": "context", "elements": [_mrkdwn(cut(text, SECTION_MOST))]}


def _mrkdwn(text: str) -> Block:
    """Verbatim: else Slack makes links of addresses and of channels' names in what somebody wrote."""
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
