"""Store the workspace: users, channels, and messages, as Slack's JSON."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from local.slack import validation

Message = dict[str, Any]
# type ("posted", "edited" or "deleted"), channel (its id), message, to (an id or None); or type "views" or
# "home", the views, to
Change = dict[str, Any]

TEAM, APP_ID = {"id": "T01LOCALLAB", "domain": "local-lab"}, "A01SWEEPBOT"


class Refusal(Exception):  # noqa: N818 - a response, not a failure
    """An error response: {"ok": false, "error": error, **more}."""

    def __init__(self, error: str, **more: Any) -> None:
        super().__init__(error)
        self.body: dict[str, Any] = {"ok": False, "error": error, **more}


@dataclass(frozen=True)
class User:
    id: str
    name: str
    real_name: str
    bot_id: str | None = None

    def shown(self) -> dict[str, Any]:
        """Return the user as users.info does with the scope users:read.email."""
        names = {"real_name": self.real_name, "display_name": self.name, "email": f"{self.name}@lab.example"}
        about = {"id": self.id, "team_id": TEAM["id"], "name": self.name, "real_name": self.real_name}
        flags = {"deleted": False, "is_bot": self.bot_id is not None, "is_admin": False}
        flags |= {"is_restricted": False, "is_ultra_restricted": False}
        return {**about, **flags, "tz": "Etc/UTC", "tz_offset": 0, "profile": names}


BOT = User("U01SWEEPBOT", "sweepbot", "Sweepbot", bot_id="B01SWEEPBOT")
SLACKBOT = User("USLACKBOT", "slackbot", "Slackbot", bot_id="B01SLACKBOT")
ADA = User("U01ADALOVEL", "ada", "Ada Lovelace")
GRACE = User("U01GRACEHOP", "grace", "Grace Hopper")
LINUS = User("U01LINUSPAU", "linus", "Linus Pauling")
PEOPLE = (ADA, GRACE, LINUS)


@dataclass
class Channel:
    id: str
    name: str
    members: set[str]
    messages: dict[str, Message] = field(default_factory=dict)  # by ts, which also is their order


class Workspace:
    """The workspace's state, in memory, with listeners for changes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        everyone = {person.id for person in PEOPLE}
        sweeps = Channel("C01SWEEPS00", "sweeps", everyone | {BOT.id})
        vision = Channel("C01VISION00", "vision", {ADA.id, GRACE.id, BOT.id})
        random = Channel("C01RANDOM00", "random", everyone)
        self.channels = {channel.id: channel for channel in (sweeps, vision, random)}
        self.users = {user.id: user for user in (*PEOPLE, BOT, SLACKBOT)}
        self.groups: dict[str, list[str]] = {}  # users by user group
        self.ephemeral_messages: dict[str, list[Message]] = {person.id: [] for person in PEOPLE}
        self.files: dict[str, dict[str, Any]] = {}  # by id: name, size, and content once it is uploaded
        self._listeners: list[Callable[[Change], None]] = []
        self._last_stamp = 0

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with every change from now on; return a function that stops it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def stamp(self) -> str:
        """Return a new `ts`: seconds and microseconds, unique and increasing."""
        self._last_stamp = max(int(time.time() * 1e6), self._last_stamp + 1)
        return f"{self._last_stamp // 10**6}.{self._last_stamp % 10**6:06}"

    def new_file(self, name: str, size: int) -> dict[str, Any]:
        file = {"id": f"F{len(self.files):09}", "name": name, "size": size}
        return self.files.setdefault(str(file["id"]), file)

    def person(self, name: str) -> User:
        """Return the user with this name or id. Raises KeyError."""
        return {person.name: person for person in PEOPLE}.get(name) or self.users[name]

    def channel(self, name: str) -> Channel:
        return {channel.name: channel for channel in self.channels.values()}.get(name) or self.channels[name]

    def direct(self, person: User) -> Channel:
        """Return the direct message between this user and the bot; open it if needed."""
        channel_id = f"D{person.id[1:]}"
        return self.channels.setdefault(channel_id, Channel(channel_id, "directmessage", {person.id, BOT.id}))

    def post(self, channel: Channel, by: User, content: Message, thread_ts: str | None = None) -> Message:
        """Post a message; `content` has text and blocks. A reply to none goes into the channel."""
        thread_ts = thread_ts if thread_ts in channel.messages else None
        message = self._message(by, content, thread_ts)
        channel.messages[message["ts"]] = message
        self._notify("posted", channel.id, message)
        if parent := channel.messages.get(thread_ts or ""):
            users = list(dict.fromkeys([*parent.get("reply_users", []), by.id]))
            parent |= {"thread_ts": thread_ts, "latest_reply": message["ts"], "reply_users": users}
            parent |= {"reply_count": parent.get("reply_count", 0) + 1, "reply_users_count": len(users)}
            self._notify("edited", channel.id, parent)
        return message

    def post_ephemeral(
        self, channel: Channel, to: User, content: Message, by: User = BOT, thread_ts: str | None = None
    ) -> Message:
        """Post an ephemeral message, which no API method returns."""
        message = self._message(by, content, thread_ts) | {"channel": channel.id, "is_ephemeral": True}
        self.ephemeral_messages[to.id].append(message)
        self._notify("posted", channel.id, message, to.id)
        return message

    def edit(self, channel: Channel, message: Message, content: Message, to: str | None = None) -> None:
        """Replace the fields in `content`; None removes a field."""
        message |= _stored(content) | {"edited": {"user": message["user"], "ts": self.stamp()}}
        for gone in [key for key, value in content.items() if value is None]:
            message.pop(gone, None)
        self._notify("edited", channel.id, message, to)

    def delete(self, channel: Channel, message: Message, to: str | None = None) -> None:
        """Delete a message. Above replies, a note takes its place."""
        if message.get("reply_count"):
            gone = {"user": SLACKBOT.id, "subtype": "tombstone", "text": "This message was deleted."}
            self.edit(channel, message, {"blocks": None, "bot_id": None, "app_id": None} | gone)
            return
        self.ephemeral_messages[to].remove(message) if to else channel.messages.pop(message["ts"])
        self._notify("deleted", channel.id, message, to)
        if parent := channel.messages.get(message.get("thread_ts", "")) if not to else None:
            parent["reply_count"] -= 1
            self._notify("edited", channel.id, parent)

    def _message(self, author: User, content: Message, thread_ts: str | None = None) -> Message:
        app = {"bot_id": BOT.bot_id, "app_id": APP_ID} if author is BOT else {}
        thread = {"thread_ts": thread_ts} if thread_ts else {}
        shown = {"type": "message", "user": author.id, "ts": self.stamp(), "team": TEAM["id"], "text": ""}
        return shown | app | thread | _stored(content)

    def _notify(self, kind: str, channel: str, message: Message, to: str | None = None) -> None:
        self.notify({"type": kind, "channel": channel, "message": message, "to": to})

    def notify(self, change: Change) -> None:
        for listener in list(self._listeners):
            listener(copy.deepcopy(change))


def _stored(content: Message) -> Message:
    return {k: validation.completed(v) if k == "blocks" else v for k, v in content.items() if v is not None}
