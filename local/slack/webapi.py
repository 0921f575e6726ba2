"""The methods of Slack's Web API that the bot calls (docs.slack.dev/reference/methods).

A refusal is HTTP 200 with {"ok": false, "error": ...}; only a spent rate limit is a 429, and while Slack is
down a proxy answers with a page. Unknown arguments are ignored, as they are there.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from local.slack import validation
from local.slack.socketmode import SocketMode
from local.slack.views import Views
from local.slack.workspace import APP_ID, BOT, TEAM, Channel, Message, Refusal, User, Workspace

Json = dict[str, Any]

BOT_TOKEN = "xoxb-1234567890-1234567890-localsweepbot"
APP_TOKEN = "xapp-1-A01SWEEPBOT-1234567890-localsweepbot"
SCOPES = (
    "commands,chat:write,files:write,reactions:write,im:write,im:history,users:read,users:read.email,"
    "usergroups:read,app_mentions:read,channels:read,groups:read"
)
DOWN = "<!DOCTYPE html><html><head><title>Server Error | Slack</title></head></html>"
TEXT_LONGEST, UPDATE_LONGEST = 40_000, 4_000  # a post is truncated, an update rejected
ALT_LONGEST = 1_000  # characters


@dataclass(frozen=True)
class Rate:
    """A rate limit: per channel for chat.postMessage, otherwise per method."""

    per_minute: float
    burst: int


RATES = {
    "auth.test": Rate(600, 100),
    "apps.connections.open": Rate(50, 50),
    "chat.postMessage": Rate(60, 10),
    "chat.update": Rate(50, 50),
    "chat.delete": Rate(50, 50),
    "chat.postEphemeral": Rate(100, 100),
    "chat.getPermalink": Rate(600, 100),
    "conversations.open": Rate(50, 50),
    "conversations.members": Rate(100, 100),
    "users.info": Rate(100, 100),
    "usergroups.users.list": Rate(20, 20),
    **dict.fromkeys(("views.open", "views.push", "views.update", "views.publish"), Rate(100, 100)),
    "files.getUploadURLExternal": Rate(100, 100),
    "files.completeUploadExternal": Rate(100, 100),
}


class WebApi:
    def __init__(
        self, workspace: Workspace, views: Views, sockets: SocketMode, rates: Mapping[str, Rate]
    ) -> None:
        self.workspace, self.views, self.sockets = workspace, views, sockets
        self._rates = RATES | dict(rates)
        self.stumbles: dict[str, list[str]] = {}  # by method: errors of its next calls, or DOWN
        self._purses: dict[str, tuple[float, float]] = {}  # remaining burst, and since when

    async def handle(self, request: web.Request) -> web.Response:
        name, status, headers = request.match_info["method"], 200, {"x-oauth-scopes": SCOPES}
        if words := self.stumbles.get(name):
            return _stumble(words.pop(0))
        try:
            answer = {"ok": True, **await self._call(name, request)}
        except Refusal as refusal:
            answer = refusal.body
        if answer.get("error") == "ratelimited":
            status, headers["Retry-After"] = 429, str(math.ceil(answer.pop("seconds")))
        return web.json_response(answer, status=status, headers=headers)

    async def _call(self, name: str, request: web.Request) -> Json:
        if name not in RATES:
            raise Refusal("unknown_method", req_method=name)
        arguments = await _arguments(request)
        _authenticate(request, arguments, APP_TOKEN if name == "apps.connections.open" else BOT_TOKEN)
        self._spend(name, str(arguments.get("channel")) if name == "chat.postMessage" else "")
        self._pictures(arguments.get("blocks"))
        method = getattr(self, "_" + name.replace(".", "_").lower())
        answer: Json = method(arguments, f"{request.scheme}://{request.host}")
        return answer

    def _pictures(self, blocks: Any) -> None:
        for number, block in enumerate(blocks if isinstance(blocks, list) else ()):
            file = block.get("slack_file") if isinstance(block, dict) else None
            if isinstance(file, dict) and "content" not in self.workspace.files.get(str(file.get("id")), {}):
                error = f"invalid slack file [json-pointer:/blocks/{number}/slack_file]"
                raise Refusal("invalid_blocks", errors=[error])

    def _spend(self, method: str, channel: str) -> None:
        rate, now, purse = self._rates[method], self.workspace.clock(), f"{method} {channel}"
        left, since = self._purses.get(purse, (rate.burst, now))
        left = min(rate.burst, left + (now - since) * rate.per_minute / 60)
        self._purses[purse] = (left - 1 if left >= 1 else left, now)
        if left < 1:
            raise Refusal("ratelimited", seconds=(1 - left) * 60 / rate.per_minute)

    def _auth_test(self, _: Json, site: str) -> Json:
        bot = {"user": BOT.name, "user_id": BOT.id, "bot_id": BOT.bot_id, "is_enterprise_install": False}
        return {"url": f"{site}/", "team": TEAM["domain"], "team_id": TEAM["id"], **bot}

    def _apps_connections_open(self, _: Json, site: str) -> Json:
        return {"url": f"ws{site[4:]}/link/?ticket={self.sockets.ticket()}&app_id={APP_ID}"}

    def _chat_postmessage(self, arguments: Json, _: str) -> Json:
        channel, content, thread_ts = self._channel(arguments), content_of(arguments), _thread(arguments)
        if thread_ts and str(arguments.get("reply_broadcast")).lower() in {"true", "1"}:
            content["subtype"] = "thread_broadcast"
        message = self.workspace.post(channel, BOT, content, thread_ts)
        return {"channel": channel.id, "ts": message["ts"], "message": message}

    def _chat_postephemeral(self, arguments: Json, _: str) -> Json:
        channel = self._channel(arguments)
        if arguments.get("user") not in channel.members - {BOT.id}:
            raise Refusal("user_not_in_channel")
        to = self.workspace.users[arguments["user"]]
        post_ephemeral = self.workspace.post_ephemeral(
            channel, to, content_of(arguments), thread_ts=_thread(arguments)
        )
        return {"message_ts": post_ephemeral["ts"]}

    def _chat_update(self, arguments: Json, _: str) -> Json:
        channel, message = self._found(arguments, "ts")
        if message["user"] != BOT.id:
            raise Refusal("cant_update_message")
        if len(str(arguments.get("text") or "")) > UPDATE_LONGEST:
            raise Refusal("msg_too_long")
        content = content_of(arguments, clears=True)
        if "text" in content:  # text alone removes the blocks; blocks alone keep the text
            content = {"blocks": None, **content}
        self.workspace.edit(channel, message, content)
        return {"channel": channel.id, "ts": message["ts"], "text": message["text"], "message": message}

    def _chat_delete(self, arguments: Json, _: str) -> Json:
        channel, message = self._found(arguments, "ts")
        if message["user"] != BOT.id:
            raise Refusal("cant_delete_message")
        self.workspace.delete(channel, message)
        return {"channel": channel.id, "ts": message["ts"]}

    def _chat_getpermalink(self, arguments: Json, site: str) -> Json:
        channel, message = self._found(arguments, "message_ts")
        thread = f"?thread_ts={message['thread_ts']}&cid={channel.id}" if "thread_ts" in message else ""
        link = f"{site}/archives/{channel.id}/p{message['ts'].replace('.', '')}{thread}"
        return {"channel": channel.id, "permalink": link}

    def _conversations_open(self, arguments: Json, _: str) -> Json:
        """Open a direct message with one user; group messages aren't supported."""
        if not arguments.get("users"):
            raise Refusal("users_list_not_supplied")
        return {"channel": {"id": self.workspace.direct(self._user(arguments["users"])).id}}

    def _conversations_members(self, arguments: Json, _: str) -> Json:
        """A bot reads public channels that it isn't in, too; direct messages would need im:read."""
        place, limit = str(arguments.get("channel")), str(arguments.get("limit") or 100)
        if place not in self.workspace.channels:
            raise Refusal("channel_not_found")
        needed = "im:read" if place.startswith("D") else "channels:read"
        if needed not in SCOPES.split(","):
            raise Refusal("missing_scope", needed=needed, provided=SCOPES)
        if not (limit.isdecimal() and 0 < int(limit) < 1_000):
            raise Refusal("invalid_limit")
        start = str(arguments.get("cursor") or "0")
        if not start.isdecimal():
            raise Refusal("invalid_cursor")
        everyone, end = sorted(self.workspace.channels[place].members), int(start) + int(limit)
        cursor = str(end) if end < len(everyone) else ""
        return {"members": everyone[int(start) : end], "response_metadata": {"next_cursor": cursor}}

    def _users_info(self, arguments: Json, _: str) -> Json:
        return {"user": self._user(arguments.get("user")).shown()}

    def _usergroups_users_list(self, arguments: Json, _: str) -> Json:
        if (users := self.workspace.groups.get(arguments.get("usergroup", ""))) is None:
            raise Refusal("no_such_subteam")
        return {"users": users}

    def _views_open(self, arguments: Json, _: str) -> Json:
        return {"view": self.views.open(arguments)}

    def _views_push(self, arguments: Json, _: str) -> Json:
        return {"view": self.views.push(arguments)}

    def _views_update(self, arguments: Json, _: str) -> Json:
        return {"view": self.views.update(arguments)}

    def _views_publish(self, arguments: Json, _: str) -> Json:
        return {"view": self.views.publish(arguments)}

    def _files_getuploadurlexternal(self, arguments: Json, site: str) -> Json:
        if not arguments.get("filename") or not str(arguments.get("length", "")).isdecimal():
            raise Refusal("invalid_arguments")
        if len(str(arguments.get("alt_txt", ""))) > ALT_LONGEST:
            raise Refusal("alt_txt_too_large")
        file = self.workspace.new_file(str(arguments["filename"]), int(arguments["length"]))
        return {"upload_url": f"{site}/upload/{file['id']}", "file_id": file["id"]}

    def _files_completeuploadexternal(self, arguments: Json, site: str) -> Json:
        requested = [one["id"] for one in json.loads(str(arguments.get("files") or "[]"))]
        files = [self.workspace.files.get(file, {}) for file in requested]
        if not files or not all("content" in file for file in files):
            raise Refusal("file_not_found")
        channel = self._channel({"channel": arguments.get("channel_id")})
        shown = [
            {"id": f["id"], "name": f["name"], "size": f["size"], "url_private": f"{site}/files/{f['id']}"}
            for f in files
        ]
        content = {"text": str(arguments.get("initial_comment") or ""), "files": shown}
        self.workspace.post(channel, BOT, content, _thread(arguments))
        return {"files": shown}

    async def upload(self, request: web.Request) -> web.Response:
        """Receive an upload at a URL of files.getUploadURLExternal, which needs no token."""
        file, content = self.workspace.files.get(request.match_info["file"]), await request.read()
        if file is None or len(content) != file["size"]:
            return web.Response(status=400)
        file["content"] = content
        return web.Response(text=f"OK - {len(content)}")

    async def download(self, request: web.Request) -> web.Response:
        content = self.workspace.files.get(request.match_info["file"], {}).get("content")
        return web.Response(body=content, status=200 if content is not None else 404)

    def _user(self, name: Any) -> User:
        if not (user := self.workspace.users.get(str(name))):
            raise Refusal("user_not_found")
        return user

    def _channel(self, arguments: Json) -> Channel:
        place = str(arguments.get("channel"))
        person = self.workspace.users.get(place)
        if person and person.bot_id is None:
            return self.workspace.direct(person)
        if place not in self.workspace.channels:
            raise Refusal("channel_not_found")
        if BOT.id not in self.workspace.channels[place].members:
            raise Refusal("not_in_channel")
        return self.workspace.channels[place]

    def _found(self, arguments: Json, key: str) -> tuple[Channel, Message]:
        channel = self._channel(arguments)
        if not (message := channel.messages.get(str(arguments.get(key)))):
            raise Refusal("message_not_found")
        return channel, message


def _stumble(word: str) -> web.Response:
    if word == DOWN:
        return web.Response(status=503, text=DOWN, content_type="text/html")
    return web.json_response({"ok": False, "error": word})


def content_of(arguments: Json, *, clears: bool = False) -> Json:
    """Return a message's validated content; with `clears`, an empty list removes the blocks."""
    content: Json = {"text": str(arguments["text"])[:TEXT_LONGEST]} if arguments.get("text") else {}
    blocks = arguments.get("blocks")
    if not isinstance(blocks, list | None):  # Slack also accepts a JSON string, which the bot never sends
        raise Refusal("invalid_blocks_format")
    if blocks or (clears and blocks is not None):
        _refuse(blocks)
        content["blocks"] = blocks or None
    if not content:
        raise Refusal("no_text")
    return content


def _refuse(blocks: list[Any]) -> None:
    if found := validation.complaints(blocks):
        messages = [f"[ERROR] {complaint}" for complaint in found]
        raise Refusal("invalid_blocks", errors=found, response_metadata={"messages": messages})
    if sum(block["type"] == "table" for block in blocks) > 1:
        error = {"messages": ["[ERROR] only_one_table_allowed"]}
        raise Refusal("invalid_attachments", response_metadata=error)
    if validation.too_long(blocks):
        raise Refusal("msg_blocks_too_long")


def _thread(arguments: Json) -> str | None:
    if not (thread_ts := arguments.get("thread_ts")):
        return None
    if not re.fullmatch(r"\d{10}\.\d{6}", str(thread_ts)):
        raise Refusal("invalid_thread_ts")
    return str(thread_ts)


async def _arguments(request: web.Request) -> Json:
    if request.content_type != "application/json":
        return {**request.query, **await request.post()}
    try:
        return {**request.query, **await request.json()}
    except ValueError:
        raise Refusal("invalid_json") from None


def _authenticate(request: web.Request, arguments: Json, needed: str) -> None:
    token = request.headers.get("Authorization", "").removeprefix("Bearer ") or arguments.get("token")
    if not token:
        raise Refusal("not_authed")
    if token not in {BOT_TOKEN, APP_TOKEN}:
        raise Refusal("invalid_auth")
    if token != needed:
        raise Refusal("not_allowed_token_type")
