"""User actions in channels, and the requests to the bot: messages, commands, clicks, response URLs."""

import html
import re
import secrets
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from local.slack.socketmode import SocketMode, UnansweredError
from local.slack.user_views import COMMON, UNPRESSED, Surfaces
from local.slack.webapi import content_of
from local.slack.workspace import BOT, PEOPLE, SLACKBOT, TEAM, Channel, Message, Refusal, User, Workspace

Json = dict[str, Any]

URL_USES, URL_SECONDS = 5, 30 * 60
NO_RESPONSE = "{} failed because the app did not respond. Please try again or contact the app developer."
NONSENSE = '{} failed with the error "invalid_command_response"'
UNKNOWN = (
    "`{}` is not a valid command. In Slack, all messages that start with “/” are interpreted as commands."
)


@dataclass
class ResponseUrl:
    """A response URL of a command or click; it works in channels that the app isn't in."""

    channel: Channel
    person: User
    original: Message | None
    expires: float
    uses: int = 0


class People(Surfaces):
    """Methods take users and channels by name or id."""

    def __init__(self, workspace: Workspace, sockets: SocketMode, commands: tuple[str, ...]) -> None:
        super().__init__(workspace, sockets)
        self.commands, self.site = commands, ""
        self._urls: dict[str, ResponseUrl] = {}

    def say(self, user: str, channel: str, text: str, thread_ts: str | None = None) -> Message:
        """Post a message; a mention of the bot, and a direct message to it, send an event."""
        text = html.escape(text, quote=False)
        for someone in (*PEOPLE, BOT):
            text = re.sub(rf"@{someone.name}\b", f"<@{someone.id}>", text, flags=re.IGNORECASE)
        place, person = self.workspace.channel(channel), self.workspace.person(user)
        message = self.workspace.post(place, person, {"text": text}, thread_ts)
        is_direct = place.id.startswith("D")
        if BOT.id in place.members and (is_direct or f"<@{BOT.id}>" in text):
            kind = {"type": "message", "channel_type": "im"} if is_direct else {"type": "app_mention"}
            reported = {
                key: message[key] for key in ("user", "ts", "text", "team", "thread_ts") if key in message
            }
            self.happens(reported | kind | {"channel": place.id, "event_ts": message["ts"]})
        return message

    async def command(self, user: str, channel: str, command: str, text: str) -> str | None:
        """Send a slash command; return the acknowledgement's text, None if it failed (Slackbot shows why)."""
        person, place = self.workspace.person(user), self.workspace.channel(channel)
        if command not in self.commands:
            self._slackbot(place, person, UNKNOWN.format(command))
            return None
        payload = self._common("commands", place, person) | {
            "team_id": TEAM["id"],
            "team_domain": TEAM["domain"],
            "is_enterprise_install": "false",
            "channel_id": place.id,
            "channel_name": place.name,
            "user_id": person.id,
            "user_name": person.name,
            "command": command,
            "text": text,
        }
        try:
            if answer := await self.sockets.deliver("slash_commands", payload):
                self._show(place, person, answer)
        except UnansweredError:
            self._slackbot(place, person, NO_RESPONSE.format(command))
            return None
        except Refusal:
            self._slackbot(place, person, NONSENSE.format(command))
            return None
        return str(answer.get("text", ""))

    async def click(
        self, user: str, channel: str, ts: str, action_id: str, value: str | Json | None = None
    ) -> str | None:
        """Press a button or choose an option; return the warning shown if the app doesn't respond, else None.

        LookupError: there is no such button.
        """
        person, place = self.workspace.person(user), self.workspace.channel(channel)
        ephemeral_messages = {
            post_ephemeral["ts"]: post_ephemeral
            for post_ephemeral in self.workspace.ephemeral_messages[person.id]
        }
        message = place.messages.get(ts) or ephemeral_messages[ts]
        thread = {"thread_ts": message["thread_ts"]} if "thread_ts" in message else {}
        where = {"message_ts": ts, "channel_id": place.id, "is_ephemeral": ts in ephemeral_messages, **thread}
        payload = self._common("actions", place, person, message) | {
            "type": "block_actions",
            "actions": [_button(message, action_id, value) | {"action_ts": self.workspace.stamp()}],
            "user": {"id": person.id, "username": person.name, "name": person.name, "team_id": TEAM["id"]},
            "team": TEAM,
            "enterprise": None,
            "is_enterprise_install": False,
            "channel": {"id": place.id, "name": place.name},
            "state": {"values": {}},
            "container": {"type": "message", **where},
            **({} if ts in ephemeral_messages else {"message": message}),
        }
        try:
            await self.sockets.deliver("interactive", payload)
        except UnansweredError:
            return UNPRESSED
        return None

    async def respond(self, request: web.Request) -> web.Response:
        """Handle a post to a response_url."""
        url = self._urls.get(request.path)
        if url is None or url.uses >= URL_USES:
            return web.json_response({"ok": False, "error": "used_url"}, status=404)
        if self.workspace.clock() > url.expires:
            return web.json_response({"ok": False, "error": "expired_url"}, status=410)
        url.uses += 1
        try:
            self._show(url.channel, url.person, await request.json(), url.original)
        except Refusal as refusal:
            return web.json_response(refusal.body, status=400)
        return web.Response(text="ok")

    def _show(self, channel: Channel, person: User, answer: Json, original: Message | None = None) -> None:
        to = person.id if original and original.get("is_ephemeral") else None
        if original and answer.get("delete_original"):
            self.workspace.delete(channel, original, to)
        elif original and answer.get("replace_original"):
            self.workspace.edit(channel, original, {"blocks": None} | content_of(answer), to)
        elif answer.get("response_type") == "in_channel":
            self.workspace.post(channel, BOT, content_of(answer))
        else:
            self.workspace.post_ephemeral(channel, person, content_of(answer))

    def _slackbot(self, channel: Channel, person: User, text: str) -> None:
        self.workspace.post_ephemeral(channel, person, {"text": text}, by=SLACKBOT)

    def _common(self, kind: str, place: Channel, person: User, original: Message | None = None) -> Json:
        """Return the fields that commands and clicks share."""
        path = f"/{kind}/{TEAM['id']}/{secrets.randbelow(10**12)}/{secrets.token_urlsafe(18)}"
        self._urls[path] = ResponseUrl(place, person, original, self.workspace.clock() + URL_SECONDS)
        return {**COMMON, "response_url": self.site + path, "trigger_id": self.views.trigger(person.id)}


def _button(message: Message, action_id: str, value: str | Json | None) -> Json:
    """Find an element as actions report it; the value distinguishes elements with the same action id."""
    for block in message.get("blocks", []):
        inside = block["elements"] if block["type"] == "actions" else []
        for element in [*inside, block.get("accessory", {})]:
            if element.get("action_id") != action_id:
                continue
            if isinstance(value, dict):
                return {**element, "block_id": block["block_id"], "selected_option": value}
            if value in (None, element.get("value")):
                return {**element, "block_id": block["block_id"]}
    raise LookupError(f"no button {action_id} in {message['ts']}")
