"""A life whose Slack is the local one: people click and type, Bolt dispatches, turns answer. No processes."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

from slack_sdk.web.async_client import AsyncWebClient

from bot.core.request import Requester
from bot.slack.client import Slack
from bot.slack.rate_limit import RateLimiter
from bot.storage.work_queue import Queue
from handlers.app import build
from handlers.socket_mode import Socket
from local.slack import serve
from tests.handlers.factories import a_door
from tests.scenarios.sweep_in_memory import Clock, SimulatedSweep

CHANNEL, PLACE = "sweeps", "C01SWEEPS00"
ADA = Requester(user="U01ADALOVEL", user_name="ada", channel=PLACE)


class Chat:
    def __init__(self, life, slack, app, door):
        self.life, self.slack, self.app, self.door = life, slack, app, door

    async def rounds(self, number=1):
        for _ in range(number):
            await self.life.round()

    async def until(self, phase, most=40):
        for _ in range(most):
            if (await self.life.record()).phase is phase:
                return
            await self.life.round()
        raise AssertionError(f"it is {self.life.last.phase}: {self.thread()}")

    async def types(self, text, person="ada", rounds=2):
        """The acknowledgement, and what this person alone was told."""
        before = len(self.slack.ephemerals(person))
        answer = await self.slack.command(person, CHANNEL, "/sweep", text)
        await self.rounds(rounds)
        return answer, [m["text"] for m in self.slack.ephemerals(person)[before:]]

    async def clicks(self, action, person="ada", rounds=2):
        before = len(self.slack.ephemerals(person))
        assert await self.slack.click(person, CHANNEL, self.parent()["ts"], action) is None
        await self.rounds(rounds)
        return [m["text"] for m in self.slack.ephemerals(person)[before:]]

    async def settled(self):
        """What was sent to the bot has been dispatched."""
        while self.slack.tasks:
            await asyncio.wait(set(self.slack.tasks))
        await self.door.background.finish(3)

    def parent(self):
        return next(m for m in self.slack.messages(CHANNEL) if m.get("thread_ts", m["ts"]) == m["ts"])

    def thread(self):
        return [m["text"] for m in self.slack.messages(CHANNEL, self.parent()["ts"])[1:]]


@asynccontextmanager
async def chat(redis, **story):
    """Other sweeps' items in the queue stay there; `rounds` are turns of the one sweep."""
    slack = await serve()
    web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    story["sweep"] = {"requester": ADA} | story.get("sweep", {})
    life = SimulatedSweep(redis, Clock(None), **story)
    config = story.get("config", life.clients.config)
    life.clients = replace(life.clients, slack=Slack(web, RateLimiter(redis)), config=config)
    door = a_door(redis, store=life.store, queue=Queue(redis, prefix="life:queue"), config=config)
    app = build(web, door)
    socket = Socket(app, slack.app_token)
    try:
        await socket.open()
        async with life.started():
            yield Chat(life, slack, app, door)
    finally:
        await socket.close_async()
        await slack.close()
