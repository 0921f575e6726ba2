"""The web page of one user: static files, and a WebSocket for changes and actions."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from local.slack.user_messages import People
from local.slack.workspace import ADA, Change

Json = dict[str, Any]

FILES = Path(__file__).parent / "page"


class Page:
    def __init__(self, people: People) -> None:
        self.people, self.workspace = people, people.workspace
        self.sockets: set[web.WebSocketResponse] = set()

    def routes(self) -> list[web.AbstractRouteDef]:
        live, files = web.get("/live", self._live), web.static("/page", FILES)
        return [live, files, web.get("/", self._index), web.get("/archives/{channel}/{message}", self._index)]

    async def _index(self, _: web.Request) -> web.FileResponse:
        return web.FileResponse(FILES / "index.html")

    async def _live(self, request: web.Request) -> web.WebSocketResponse:
        """Accept WebSockets only from this page's origin, so that no other site can act as Ada."""
        if request.headers.get("Origin") != f"{request.scheme}://{request.host}":
            raise web.HTTPForbidden
        person = self.workspace.person(request.query.get("as", ADA.id)).id
        socket = web.WebSocketResponse(heartbeat=30)
        await socket.prepare(request)
        news: asyncio.Queue[Json] = asyncio.Queue()
        news.put_nowait(self._welcome(person))
        stop = self.workspace.listen(lambda one: news.put_nowait(one) if self._sees(person, one) else None)
        notifying = asyncio.create_task(_notify(socket, news))
        self.sockets.add(socket)
        async for frame in socket:
            if frame.type is WSMsgType.TEXT:
                self.people.tasks.add(task := asyncio.create_task(self._do(person, frame.json(), news)))
                task.add_done_callback(self.people.tasks.discard)
        stop()
        notifying.cancel()
        self.sockets.discard(socket)
        return socket

    async def _do(self, person: str, action: Json, news: asyncio.Queue[Json]) -> None:
        with contextlib.suppress(LookupError):  # the element has just been replaced
            await self._done(person, action, news)

    async def _done(self, person: str, action: Json, news: asyncio.Queue[Json]) -> None:
        if action["do"] == "say":
            self.people.say(person, action["channel"], action["text"], action.get("thread_ts"))
        elif action["do"] == "command":
            await self.people.command(person, action["channel"], action["command"], action["text"])
        elif action["do"] == "home":
            self.people.visit_home(person)
        elif action["do"] == "options":
            offered = await self.people.options(person, action["action_id"], action["typed"])
            news.put_nowait({"type": "options", "offered": offered, **action})
        elif action["do"] == "submit":
            news.put_nowait({"type": "errors", "errors": await self.people.submit(person)})
        elif action["do"] == "dismiss":
            await self.people.dismiss(person)
        elif warning := await self._touch(person, action):
            news.put_nowait({"type": "warning", "text": warning})

    async def _touch(self, person: str, action: Json) -> str | None:
        if action["do"] == "enter":
            place = action["action_id"], action["value"], action["block_id"]
            return await self.people.enter(person, *place)
        if action["do"] == "press":
            return await self.people.press(person, action["action_id"], action["value"])
        return await self.people.click(
            person, action["channel"], action["ts"], action["action_id"], action["value"]
        )

    def _welcome(self, person: str) -> Json:
        """Return everything that this user can see now; changes follow."""
        channels = [
            {"id": channel.id, "name": channel.name, "messages": list(channel.messages.values())}
            for channel in self.workspace.channels.values()
            if person in channel.members
        ]
        users = self.workspace.users.values()
        people = [{"id": user.id, "name": user.real_name, "app": user.bot_id is not None} for user in users]
        ephemeral_messages, commands = self.workspace.ephemeral_messages[person], list(self.people.commands)
        views = [self.people.views.stated(view) for view in self.people.views.stacks.get(person, [])]
        shown: Json = {
            "people": people,
            "channels": channels,
            "ephemeral_messages": ephemeral_messages,
            "commands": commands,
        }
        shown |= {"views": views, "home": self.people.views.homes.get(person)}
        return {"type": "welcome", "you": person, **shown}

    def _sees(self, person: str, change: Change) -> bool:
        place = self.workspace.channels.get(change.get("channel", ""))
        return change["to"] in (None, person) and (place is None or person in place.members)


async def _notify(socket: web.WebSocketResponse, news: asyncio.Queue[Json]) -> None:
    while not socket.closed:
        await socket.send_json(await news.get())
