"""Store modals and the Home tab for the views.* methods. https://docs.slack.dev/surfaces/modals

A trigger is valid for three seconds and one view. An update keeps the entered values of blocks and actions
with the same ids; `hash` rejects an update of a view that has changed meanwhile.
"""

import copy
import json
import secrets
from typing import Any

from local.slack import validation
from local.slack.workspace import APP_ID, BOT, TEAM, Refusal, Workspace

Json = dict[str, Any]

TRIGGER_SECONDS = 3.0
MAX_STACK = 3
LARGEST = 250_000  # bytes


class Views:
    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.stacks: dict[str, list[Json]] = {}  # open modals by user, the top one last
        self.homes: dict[str, Json] = {}
        self._triggers: dict[str, tuple[str, float]] = {}  # person and expiry; "" as person: used
        self._entered: dict[str, dict[tuple[str, str], Json]] = {}  # by view: chosen options and typed text

    def trigger(self, person: str) -> str:
        stamp = self.workspace.stamp().partition(".")[0]
        trigger = f"{secrets.randbelow(10**13)}.{stamp}.{secrets.token_hex(16)}"
        self._triggers[trigger] = person, self.workspace.clock() + TRIGGER_SECONDS
        return trigger

    def _spend(self, arguments: Json) -> str:
        if (trigger := str(arguments.get("trigger_id"))) not in self._triggers:
            raise Refusal("invalid_trigger_id")
        person, expires = self._triggers[trigger]
        if not person:
            raise Refusal("exchanged_trigger_id")
        if self.workspace.clock() > expires:
            raise Refusal("expired_trigger_id")
        self._triggers[trigger] = "", expires
        return person

    def open(self, arguments: Json) -> Json:
        given = _checked(arguments, "modal")
        person = self._spend(arguments)
        self.stacks[person] = [_born(given)]
        return self._error_text(person)

    def push(self, arguments: Json) -> Json:
        given = _checked(arguments, "modal")
        return self.pushed(self._spend(arguments), given)

    def pushed(self, person: str, given: Json) -> Json:
        if not (stack := self.stacks.get(person)):
            raise Refusal("not_found")
        if len(stack) >= MAX_STACK:
            raise Refusal("push_limit_reached")
        root = {"root_view_id": stack[0]["id"], "previous_view_id": stack[-1]["id"]}
        stack.append(_born(given) | root)
        return self._error_text(person)

    def update(self, arguments: Json) -> Json:
        given = _checked(arguments, "modal")
        for person, stack in self.stacks.items():
            for view in stack:
                if view["id"] == arguments.get("view_id"):
                    _unchanged(view, arguments)
                    return self.updated(person, view, given)
        raise Refusal("not_found")

    def updated(self, person: str, view: Json, given: Json) -> Json:
        kept = {key: view[key] for key in ("id", "root_view_id", "previous_view_id")}
        for key in set(view) - set(kept):
            del view[key]
        view |= _born(given) | kept
        self._error_text(person)
        return view

    def publish(self, arguments: Json) -> Json:
        person = str(arguments.get("user_id"))
        if person not in self.workspace.users:
            raise Refusal("user_not_found")
        given, old = _checked(arguments, "home"), self.homes.get(person)
        _unchanged(old or {}, arguments)
        self.homes[person] = _born(given) | ({"id": old["id"]} if old else {})
        self.workspace.notify({"type": "home", "home": self.homes[person], "to": person})
        return self.homes[person]

    def close(self, person: str, *, everything: bool = False) -> None:
        self.stacks[person] = [] if everything else self.stacks[person][:-1]
        self._error_text(person)

    def enter(self, view: Json, block_id: str, action_id: str, value: Json) -> None:
        self._entered.setdefault(view["id"], {})[block_id, action_id] = value

    def stated(self, view: Json) -> Json:
        """Return the view with the state of its inputs, as in submissions and clicks."""
        values: Json = {}
        for block_id, element in validation.elements(view["blocks"]):
            entered = self._entered.get(view["id"], {}).get((block_id, element["action_id"]))
            value = entered if entered and entered["type"] == element["type"] else initial(element)
            values.setdefault(block_id, {})[element["action_id"]] = value
        return copy.deepcopy(view) | {"state": {"values": values}}

    def _error_text(self, person: str) -> Json:
        """Update the page; return the top view, {} if none is open."""
        stack = self.stacks[person]
        shown = [self.stated(view) for view in stack]
        self.workspace.notify({"type": "views", "views": shown, "to": person})
        return stack[-1] if stack else {}


def initial(element: Json) -> Json:
    """Return the initial value of an input."""
    if element["type"].endswith("_select"):
        return {"type": element["type"], "selected_option": element.get("initial_option")}
    return {"type": element["type"], "value": element.get("initial_value")}


def _born(given: Json) -> Json:
    view_id, empty = f"V{secrets.token_hex(5).upper()}", {"private_metadata": "", "callback_id": ""}
    stored: Json = {"id": view_id, "team_id": TEAM["id"], "external_id": "", **empty, **given}
    stamp = {"hash": f"{secrets.randbelow(10**10)}.{secrets.token_hex(4)}", "state": {"values": {}}}
    app = {"app_id": APP_ID, "bot_id": BOT.bot_id, "root_view_id": view_id, "previous_view_id": None}
    return stored | stamp | app | {"blocks": validation.completed(given["blocks"])}


def _unchanged(view: Json, arguments: Json) -> None:
    if arguments.get("hash") and arguments["hash"] != view.get("hash"):
        raise Refusal("hash_conflict")


def _checked(arguments: Json, kind: str) -> Json:
    view = arguments.get("view")
    try:
        view = json.loads(view) if isinstance(view, str) else view
    except ValueError:
        view = None
    return checked(view, kind)


def checked(view: Any, kind: str = "modal") -> Json:
    """Raise Refusal for a view that Slack would reject."""
    if found := validation.view_complaints(view, kind):
        messages = [f"[ERROR] {complaint}" for complaint in found]
        raise Refusal("invalid_arguments", response_metadata={"messages": messages})
    if len(json.dumps(view).encode()) > LARGEST:
        raise Refusal("view_too_large")
    good: Json = view
    return good
