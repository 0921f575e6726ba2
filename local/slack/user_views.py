"""User actions in modals and on the Home tab, and what Slack sends to the bot."""

import asyncio
import secrets
import time
from typing import Any

from local.slack import validation
from local.slack.socketmode import SocketMode, UnansweredError
from local.slack.views import Views, checked
from local.slack.workspace import APP_ID, BOT, TEAM, Refusal, User, Workspace

Json = dict[str, Any]

UNPRESSED = "This app did not respond. Try again, or contact the app developer."
TROUBLE = "We had some trouble connecting. Try again?"
UNLOADED = "No result"  # shown if the app doesn't respond, or responds with invalid options
REQUIRED = "Please complete this required field."
COMMON: Json = {"token": "local-verification-token", "api_app_id": APP_ID}


class Surfaces:
    """Methods take users by name or id, and act on their top modal, or else on their Home tab."""

    def __init__(self, workspace: Workspace, sockets: SocketMode) -> None:
        self.workspace, self.sockets, self.views = workspace, sockets, Views(workspace)
        self.tasks: set[asyncio.Task[Any]] = set()

    def top(self, user: str) -> Json:
        """Return the top modal. Raises LookupError if none is open."""
        return self.views.stacks[self.workspace.person(user).id][-1]

    async def enter(self, user: str, action_id: str, value: Any, block_id: str = "") -> str | None:
        """Type into an input, or choose an option {"text", "value"} of a menu; None clears it.

        `block_id` tells inputs with the same action id apart; "": the first one.

        Notifies the app if the block has dispatch_action; returns the warning shown.
        """
        view = self.top(user)
        block, element = _element(view, action_id, block_id=block_id)
        kind = "selected_option" if element["type"].endswith("_select") else "value"
        self.views.enter(view, block["block_id"], action_id, {"type": element["type"], kind: value})
        if block["type"] == "input" and not block.get("dispatch_action"):
            return None
        return await self._act(user, view, block, element | {kind: value})

    async def press(self, user: str, action_id: str, value: str | None = None) -> str | None:
        """Press a button of the top modal, or else of the Home tab; return the warning shown."""
        person = self.workspace.person(user).id
        view = (self.views.stacks.get(person) or [self.views.homes[person]])[-1]
        block, element = _element(view, action_id, value)
        return await self._act(user, view, block, element)

    async def _act(self, user: str, view: Json, block: Json, element: Json) -> str | None:
        action = element | {"block_id": block["block_id"], "action_ts": self.workspace.stamp()}
        payload = self._interactive("block_actions", user, self.views.stated(view)) | {
            "actions": [action],
            "container": {"type": "view", "view_id": view["id"]},
        }
        try:
            await self.sockets.deliver("interactive", payload)
        except UnansweredError:
            return UNPRESSED
        return None

    async def options(self, user: str, action_id: str, typed: str = "") -> list[Json] | str:
        """Return a menu's options for the typed text; an error message if the app doesn't respond.

        The view in the payload has no state (github.com/slackapi/bolt-js/issues/1146).
        """
        view = self.top(user)
        block, _ = _element(view, action_id)
        payload = self._interactive("block_suggestion", user, view) | {
            "container": {"type": "view", "view_id": view["id"]},
            "block_id": block["block_id"],
            "action_id": action_id,
            "value": typed,
        }
        try:
            answer = await self.sockets.deliver("interactive", payload)
        except UnansweredError:
            return UNLOADED
        return UNLOADED if validation.options_complaints(answer) else list(answer["options"])

    async def submit(self, user: str) -> dict[str, str]:
        """Submit the top modal; return errors by block id, with "" for the whole modal."""
        person, view = self.workspace.person(user), self.views.stated(self.top(user))
        if missing := [block for block in view["blocks"] if _is_missing(block, view["state"]["values"])]:
            return {block["block_id"]: REQUIRED for block in missing}
        payload = self._interactive("view_submission", user, view) | {"response_urls": []}
        try:
            return self._answered(person, view, await self.sockets.deliver("interactive", payload))
        except (UnansweredError, Refusal):
            return {"": TROUBLE}

    def _answered(self, person: User, view: Json, answer: Json) -> dict[str, str]:
        """Apply the app's response. Raises Refusal for an invalid one."""
        stack = self.views.stacks[person.id]
        live = next((one for one in stack if one["id"] == view["id"]), None)
        match answer.get("response_action"):
            case None if live is stack[-1]:
                self.views.close(person.id)
            case "clear":
                self.views.close(person.id, everything=True)
            case "update" if live:
                self.views.updated(person.id, live, checked(answer.get("view")))
            case "push":
                self.views.pushed(person.id, checked(answer.get("view")))
            case "errors":
                inputs = {block["block_id"] for block in view["blocks"] if block["type"] == "input"}
                if not answer.get("errors") or answer["errors"].keys() - inputs:
                    raise Refusal("invalid_arguments")
                return dict(answer["errors"])
            case None:
                pass  # a second response; already closed
            case _:
                raise Refusal("invalid_arguments")
        return {}

    async def dismiss(self, user: str) -> None:
        """Close the top modal; notifies the app if the view has notify_on_close."""
        view = self.views.stated(self.top(user))
        self.views.close(self.workspace.person(user).id, everything=bool(view.get("clear_on_close")))
        if view.get("notify_on_close"):
            closed = self._interactive("view_closed", user, view) | {"is_cleared": False}
            del closed["trigger_id"]
            self._soon(self._noticed(closed))

    async def _noticed(self, payload: Json) -> None:
        try:
            await self.sockets.deliver("interactive", payload)
        except UnansweredError:
            return

    def visit_home(self, user: str) -> None:
        """Open the bot's Home tab."""
        person = self.workspace.person(user)
        home = self.views.homes.get(person.id)
        opened: Json = {"type": "app_home_opened", "user": person.id, "tab": "home"}
        opened |= {"channel": self.workspace.direct(person).id, "event_ts": self.workspace.stamp()}
        self.happens(opened | ({"view": home} if home else {}))

    def happens(self, event: Json) -> None:
        """Send an event; unlike commands and clicks, Slack repeats it until it is acknowledged."""
        about: Json = {"type": "event_callback", "team_id": TEAM["id"], "event": event}
        about |= {"event_id": f"Ev{secrets.token_hex(5).upper()}", "event_time": int(time.time())}
        about |= {"authorizations": [{"team_id": TEAM["id"], "user_id": BOT.id, "is_bot": True}]}
        self._soon(self._event(COMMON | about | {"is_ext_shared_channel": False}))

    async def _event(self, payload: Json) -> None:
        for attempt in range(2):
            try:
                again = {"retry_attempt": attempt, "retry_reason": "timeout" if attempt else ""}
                await self.sockets.deliver("events_api", payload, **again)
            except UnansweredError:
                continue
            return

    def _soon(self, doing: Any) -> None:
        self.tasks.add(task := asyncio.create_task(doing))
        task.add_done_callback(self.tasks.discard)

    def _interactive(self, kind: str, user: str, view: Json) -> Json:
        person = self.workspace.person(user)
        who = {"id": person.id, "username": person.name, "name": person.name, "team_id": TEAM["id"]}
        where = {"team": TEAM, "enterprise": None, "is_enterprise_install": False}
        return {"type": kind, "user": who, **where, **COMMON, "view": view} | {
            "trigger_id": self.views.trigger(person.id)
        }


def _element(
    view: Json, action_id: str, value: str | None = None, *, block_id: str = ""
) -> tuple[Json, Json]:
    """Return the element with this action id. Raises LookupError."""
    for block in view["blocks"]:
        if block_id and block["block_id"] != block_id:
            continue
        inside = block.get("elements", []) if block["type"] == "actions" else []
        for one in [*inside, block.get("accessory", {}), block.get("element", {})]:
            if one.get("action_id") == action_id and value in (None, one.get("value")):
                return block, one
    raise LookupError(f"no {action_id} in the view")


def _is_missing(block: Json, values: Json) -> bool:
    if block["type"] != "input" or block.get("optional"):
        return False
    value = values[block["block_id"]][block["element"]["action_id"]]
    return not (value.get("selected_option") or value.get("value"))
