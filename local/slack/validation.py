"""Validate messages and views as Slack does, with its error messages.

slack_sdk checks none of this for plain dicts, so a message too long for the real Slack must fail here first.
The limits are those of docs.slack.dev/reference/block-kit; messages and JSON pointers are as in real errors.
Slack has more blocks and elements; those that the page can't render are rejected as unknown.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any

Check = Callable[[Any, str], Iterator[str]]
Parts = dict[str, Check]

LONGEST = 13_200  # characters of all blocks; unpublished, measured in github.com/slackapi/bolt-js/issues/2509


def complaints(blocks: list[Any]) -> list[str]:
    """Return Slack's errors about the blocks of a message; empty if they are valid."""
    return [*_MESSAGE(blocks, "/blocks"), *_repeated(blocks, "block_id", "/blocks")]


def view_complaints(view: Any, kind: str) -> list[str]:
    """Return Slack's errors about a modal or Home tab."""
    found = list(_typed(**{kind: _MODAL if kind == "modal" else _HOME})(view, "/view"))
    if not found:
        found = list(_repeated(view["blocks"], "block_id", "/view/blocks"))
        if kind == "modal" and "submit" not in view and any(b["type"] == "input" for b in view["blocks"]):
            found.append(_at("/view", "must define `submit` to use an `input` block in modals"))
    return found


def elements(blocks: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield elements that have a state, with their block id."""
    for block in blocks:
        inside = block.get("elements", []) if block["type"] == "actions" else []
        for one in [*inside, block.get("accessory", {}), block.get("element", {})]:
            if one.get("type") in _STATEFUL:
                yield block["block_id"], one


def too_long(blocks: list[Any]) -> bool:
    return len(json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))) > LONGEST


def completed(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks as Slack stores them, with all ids and defaults."""
    return [{"block_id": secrets.token_urlsafe(4)[:5], **_filled(block)} for block in blocks]


def _filled(node: Any) -> Any:
    if isinstance(node, list):
        return [_filled(item) for item in node]
    if not isinstance(node, dict):
        return node
    named: dict[str, Any] = {"action_id": secrets.token_urlsafe(4)[:5]}
    defaults = {"plain_text": {"emoji": True}, "mrkdwn": {"verbatim": False}}
    defaults |= dict.fromkeys(("button", *_STATEFUL), named)
    return defaults.get(str(node.get("type")), {}) | {key: _filled(value) for key, value in node.items()}


def _at(pointer: str, sentence: str) -> str:
    return f"{sentence} [json-pointer:{pointer}]"


def _any(_value: Any, _at: str) -> Iterator[str]:
    yield from ()


def _string(most: int) -> Check:
    def check(value: Any, at: str) -> Iterator[str]:
        if not isinstance(value, str):
            yield _at(at, "must be a string")
        elif len(value) > most:
            yield _at(at, f"must be less than {most + 1} characters")
        elif not value:
            yield _at(at, "must be more than 0 characters")

    return check


def _metadata(value: Any, at: str) -> Iterator[str]:
    if value != "":
        yield from _string(3000)(value, at)


def _one_of(*choices: str) -> Check:
    def check(value: Any, at: str) -> Iterator[str]:
        if value not in choices:
            yield _at(at, f"must be one of: {', '.join(choices)}")

    return check


def _image_url(value: Any, at: str) -> Iterator[str]:
    """Reject local image URLs: Slack downloads images itself."""
    if not re.match(r"https?://(?!localhost|127\.|\[?::1)[^/\s]+\.", str(value)):
        yield _at(at, "downloading image failed")


def _items(check: Check, most: int, least: int = 1) -> Check:
    def checked(value: Any, at: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield _at(at, "must provide an array")
        elif len(value) > most:
            yield _at(at, f"no more than {most} items allowed")
        elif len(value) < least:
            yield _at(at, f"no less than {least} items allowed")
        else:
            for index, item in enumerate(value):
                yield from check(item, f"{at}/{index}")
            yield from _repeated(value, "action_id", at)

    return checked


def _repeated(items: list[Any], key: str, at: str) -> Iterator[str]:
    seen = set()
    for index, name in enumerate(item.get(key) if isinstance(item, dict) else None for item in items):
        if name and name in seen:
            yield _at(f"{at}/{index}/{key}", f'`{key}` "{name}" already exists')
        seen.add(name)


def _object(required: Parts, optional: Parts | None = None) -> Check:
    """Check that the object has exactly these keys and `type`."""
    known = required | (optional or {}) | {"type": _any}

    def check(value: Any, at: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield _at(at, "must provide an object")
            return
        yield from (_at(at, f"missing required field: {key}") for key in required if key not in value)
        yield from (_at(at, f"invalid additional property: {key}") for key in value if key not in known)
        for key in known.keys() & value.keys():
            yield from known[key](value[key], f"{at}/{key}")

    return check


def _typed(**kinds: Check) -> Check:
    def check(value: Any, at: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield _at(at, "must provide an object")
        elif "type" not in value:
            yield _at(at, "missing required field: type")
        elif value["type"] not in kinds:
            yield _at(f"{at}/type", f"unsupported type: {value['type']}")
        else:
            yield from kinds[value["type"]](value, at)

    return check


def _block(required: Parts, optional: Parts | None = None) -> Check:
    return _object(required, {"block_id": _string(255)} | (optional or {}))


def _plain(most: int) -> Check:
    return _typed(plain_text=_object({"text": _string(most)}, {"emoji": _any}))


def _text(most: int) -> Check:
    string: Parts = {"text": _string(most)}
    return _typed(plain_text=_object(string, {"emoji": _any}), mrkdwn=_object(string, {"verbatim": _any}))


def _section(block: Any, at: str) -> Iterator[str]:
    if "text" not in block and "fields" not in block:
        yield _at(f"{at}/type", "must define either `text` or `fields`")
    accessory = _typed(image=_IMAGE, **_PRESSABLE)
    parts: Parts = {"text": _text(3000), "fields": _items(_text(2000), 10)}
    yield from _block({}, parts | {"accessory": accessory, "expand": _any})(block, at)


def _image(block: Any, at: str) -> Iterator[str]:
    """Check the URL, or the id of an uploaded file."""
    shown: Parts = {"slack_file": _object({"id": _string(255)})} if "slack_file" in block else _PICTURE
    yield from _block(shown | {"alt_text": _string(2000)}, {"title": _plain(2000)})(block, at)


_PICTURE: Parts = {"image_url": _image_url, "alt_text": _string(2000)}
_IMAGE = _object(_PICTURE)
_STYLE: Parts = {"style": _one_of("primary", "danger")}
_ANSWERS: Parts = {"confirm": _plain(30), "deny": _plain(30)}
_CONFIRM: Parts = {"confirm": _object({"title": _plain(100), "text": _text(300)} | _ANSWERS, _STYLE)}
_PRESSED: Parts = {"action_id": _string(255), "value": _string(2000), "url": _string(3000)}
_BUTTON = _object({"text": _plain(75)}, _PRESSED | _STYLE | _CONFIRM | {"accessibility_label": _string(75)})
_OPTION = _object({"text": _plain(75), "value": _string(150)}, {"description": _plain(75)})
_OPTIONS: Parts = {"options": _items(_OPTION, 100)}


def options_complaints(answer: Any) -> list[str]:
    """Return errors about the options that an app returned for a menu; an empty list is valid."""
    return list(_object({"options": _items(_OPTION, 100, least=0)})(answer, ""))


def _static_select(element: Any, at: str) -> Iterator[str]:
    yield from _object(_OPTIONS, _ASKED | _CONFIRM | {"initial_option": _OPTION})(element, at)
    if "initial_option" in element and element["initial_option"] not in element.get("options", []):
        yield _at(f"{at}/initial_option", "initial_option must be one of the options")


_ASKED: Parts = {"action_id": _string(255), "placeholder": _plain(150), "focus_on_load": _any}
_EXTERNAL = _object({}, _ASKED | _CONFIRM | {"initial_option": _OPTION, "min_query_length": _any})
_LENGTHS: Parts = {"multiline": _any, "min_length": _any, "max_length": _any, "initial_value": _string(3000)}
_NUMBERS: Parts = {"initial_value": _string(50), "min_value": _string(50), "max_value": _string(50)}
_PRESSABLE: Parts = {"button": _BUTTON, "static_select": _static_select, "external_select": _EXTERNAL}
_INPUTS: Parts = {
    "static_select": _static_select,
    "external_select": _EXTERNAL,
    "plain_text_input": _object({}, _ASKED | _LENGTHS),
    "number_input": _object({"is_decimal_allowed": _any}, _ASKED | _NUMBERS),
}
_STATEFUL = tuple(_INPUTS)
_INPUT: Parts = {"label": _plain(2000), "element": _typed(**_INPUTS)}
_SPAN = _typed(text=_any, link=_any, emoji=_any, user=_any, channel=_any)
_RUN = _object({"elements": _items(_SPAN, 1000, 0)}, {"border": _any, "language": _any})
_POINTS: Parts = {"elements": _items(_typed(rich_text_section=_RUN), 1000)}
_LIST = _object(_POINTS | {"style": _one_of("bullet", "ordered")}, {"indent": _any, "border": _any})
_RICH = _typed(
    rich_text_section=_RUN, rich_text_quote=_RUN, rich_text_preformatted=_RUN, rich_text_list=_LIST
)
_RICH_TEXT = _block({"elements": _items(_RICH, 1000)})
_CELL = _typed(raw_text=_object({"text": _string(3000)}), rich_text=_RICH_TEXT)
_NOTE = _typed(image=_IMAGE, plain_text=_text(3000), mrkdwn=_text(3000))
_BLOCKS: Parts = {
    "section": _section,
    "divider": _block({}),
    "header": _block({"text": _plain(150)}, {"level": _any}),
    "image": _image,
    "context": _block({"elements": _items(_NOTE, 10)}),
    "actions": _block({"elements": _items(_typed(**_PRESSABLE), 25)}),
    "rich_text": _RICH_TEXT,
    "markdown": _block({"text": _string(12_000)}),
    "table": _block({"rows": _items(_items(_CELL, 20), 100)}, {"column_settings": _items(_any, 20)}),
}
_MESSAGE = _items(_typed(**_BLOCKS), 50, least=0)
_IN_VIEW: Parts = {
    "blocks": _items(
        _typed(
            **_BLOCKS,
            input=_block(
                _INPUT, {"hint": _plain(2000)} | dict.fromkeys(("optional", "dispatch_action"), _any)
            ),
        ),
        100,
        least=0,
    )
}
_META: Parts = {"private_metadata": _metadata, "callback_id": _string(255), "external_id": _string(255)}
_FLAGS: Parts = dict.fromkeys(("clear_on_close", "notify_on_close"), _any)
_MODAL = _object(
    _IN_VIEW | {"title": _plain(24)}, _META | _FLAGS | {"submit": _plain(24), "close": _plain(24)}
)
_HOME = _object(_IN_VIEW, _META)
