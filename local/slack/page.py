"""The page where a person works: a few static files, and one web socket for what happens and what is done."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from local.slack.people import People
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
        """Another site's script must not act as Ada: only this page's own origin may connect."""
        if request.headers.get("Origin") != f"{request.scheme}://{request.host}":
            raise web.HTTPForbidden
        person = self.workspace.person(request.query.get("as", ADA.id)).id
        socket = web.WebSocketResponse(heartbeat=30)
        await socket.prepare(request)
        news: asyncio.Queue[Json] = asyncio.Queue()
        news.put_nowait(self._welcome(person))
        stop = self.workspace.listen(lambda one: news.put_nowait(one) if self._sees(person, one) else None)
        telling = asyncio.create_task(_tell(socket, news))
        self.sockets.add(socket)
        async for frame in socket:
            if frame.type is WSMsgType.TEXT:
                self.people.tasks.add(task := asyncio.create_task(self._do(person, frame.json(), news)))
                task.add_done_callback(self.people.tasks.discard)
        stop()
        telling.cancel()
        self.sockets.discard(socket)
        return socket

    async def _do(self, person: str, wish: Json, news: asyncio.Queue[Json]) -> None:
        with contextlib.suppress(LookupError):  # what they touched has just been replaced
            await self._done(person, wish, news)

    async def _done(self, person: str, wish: Json, news: asyncio.Queue[Json]) -> None:
        if wish["do"] == "say":
            self.people.say(person, wish["channel"], wish["text"], wish.get("thread_ts"))
        elif wish["do"] == "command":
            await self.people.command(person, wish["channel"], wish["command"], wish["text"])
        elif wish["do"] == "home":
            self.people.visit_home(person)
        elif wish["do"] == "options":
            offered = await self.people.options(person, wish["action_id"], wish["typed"])
            news.put_nowait({"type": "options", "offered": offered, **wish})
        elif wish["do"] == "submit":
            news.put_nowait({"type": "errors", "errors": await self.people.submit(person)})
        elif wish["do"] == "dismiss":
            await self.people.dismiss(person)
        elif warning := await self._touch(person, wish):
            news.put_nowait({"type": "warning", "text": warning})

    async def _touch(self, person: str, wish: Json) -> str | None:
        if wish["do"] == "enter":
            return await self.people.enter(person, wish["action_id"], wish["value"])
        if wish["do"] == "press":
            return await self.people.press(person, wish["action_id"], wish["value"])
        return await self.people.click(person, wish["channel"], wish["ts"], wish["action_id"], wish["value"])

    def _welcome(self, person: str) -> Json:
        """All that this person may see now; changes follow."""
        channels = [
            {"id": channel.id, "name": channel.name, "messages": list(channel.messages.values())}
            for channel in self.workspace.channels.values()
            if person in channel.members
        ]
        users = self.workspace.users.values()
        people = [{"id": user.id, "name": user.real_name, "app": user.bot_id is not None} for user in users]
        whispers, commands = self.workspace.whispers[person], list(self.people.commands)
        views = [self.people.views.stated(view) for view in self.people.views.stacks.get(person, [])]
        shown: Json = {"people": people, "channels": channels, "whispers": whispers, "commands": commands}
        shown |= {"views": views, "home": self.people.views.homes.get(person)}
        return {"type": "welcome", "you": person, **shown}

    def _sees(self, person: str, change: Change) -> bool:
        place = self.workspace.channels.get(change.get("channel", ""))
        return change["to"] in (None, person) and (place is None or person in place.members)


async def _tell(socket: web.WebSocketResponse, news: asyncio.Queue[Json]) -> None:
    while not socket.closed:
        await socket.send_json(await news.get())
