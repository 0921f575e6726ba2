"""Run Slack locally: the Web API, Socket Mode, and a web page for users.

It rejects what Slack rejects, with the same errors, so messages that work here work there. A bot only needs
other URLs and tokens; a user opens `url`.
"""

import copy
import time
from collections.abc import Callable, Mapping

from aiohttp import web

from local.serving import listen
from local.slack.page import Page
from local.slack.socketmode import SocketMode
from local.slack.user_messages import People
from local.slack.webapi import APP_TOKEN, BOT_TOKEN, DOWN, Rate, WebApi
from local.slack.workspace import Change, Message, Workspace

__all__ = ["DOWN", "Rate", "Slack", "serve"]


class Slack(People):
    """A workspace with ada, grace, linus, and #sweeps, #vision (not linus), #random (not the bot)."""

    bot_token, app_token = BOT_TOKEN, APP_TOKEN

    async def start(self, port: int, rates: Mapping[str, Rate]) -> None:
        self._page = Page(self)
        self._api = api = WebApi(self.workspace, self.views, self.sockets, rates)
        app = web.Application()
        app.add_routes([web.route("*", "/api/{method}", api.handle), web.get("/link/", self.sockets.link)])
        app.add_routes([web.post("/{kind:commands|actions}/{tail:.+}", self.respond), *self._page.routes()])
        app.add_routes([web.post("/upload/{file}", api.upload), web.get("/files/{file}", api.download)])
        self._server = await listen(app, port)
        self.site = self._server.url
        self.url, self.api_url = f"{self.site}/", f"{self.site}/api/"

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await self.sockets.drop()
        for socket in set(self._page.sockets):
            await socket.close()
        await self._server.close()

    def messages(self, channel: str, thread_ts: str | None = None) -> list[Message]:
        """Return the messages of a channel, or of a thread with its parent first."""
        posted = self.workspace.channel(channel).messages.values()
        return copy.deepcopy([message for message in posted if _belongs(message, thread_ts)])

    def ephemerals(self, user: str) -> list[Message]:
        """Return this user's ephemeral messages, each with its `channel`."""
        return copy.deepcopy(self.workspace.ephemeral_messages[self.workspace.person(user).id])

    def modals(self, user: str) -> list[Message]:
        """Return this user's stack of open modals, each with the state of its inputs."""
        stack = self.views.stacks.get(self.workspace.person(user).id, [])
        return [self.views.stated(view) for view in stack]

    def home(self, user: str) -> Message | None:
        return copy.deepcopy(self.views.homes.get(self.workspace.person(user).id))

    def stumble(self, method: str, *words: str) -> list[str]:
        """Make the next calls of a method fail with these errors, or DOWN; return the remaining ones."""
        return self._api.stumbles.setdefault(method, list(words))

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with each Change; return a function that stops it."""
        return self.workspace.listen(listener)


def _belongs(message: Message, thread_ts: str | None) -> bool:
    parent = message.get("thread_ts", message["ts"])
    return parent == (thread_ts or message["ts"]) or (not thread_ts and "subtype" in message)


async def serve(
    port: int = 0,
    *,
    commands: tuple[str, ...] = ("/sweep", "/gpus", "/env"),
    rates: Mapping[str, Rate] | None = None,
    ack_seconds: float = 3.0,
    clock: Callable[[], float] = time.monotonic,
) -> Slack:
    """Start Slack on 127.0.0.1. `rates` are limits by method; `clock` is used for rates and response URLs."""
    slack = Slack(Workspace(clock), SocketMode(ack_seconds), commands)
    await slack.start(port, rates or {})
    return slack
