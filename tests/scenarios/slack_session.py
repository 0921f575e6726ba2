"""A simulated sweep with the local Slack: clicks, commands, Bolt's dispatch, and reconciles. No processes."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

from slack_sdk.web.async_client import AsyncWebClient

from bot.core.request import Requester
from bot.platform.slack.client import Slack
from bot.platform.slack.rate_limit import RateLimiter
from bot.platform.storage.work_queue import Queue
from bot.sweep.channels.quiet import QuietHours
from bot.workspace_table import add_handlers
from handlers.app import build
from handlers.socket_mode import Socket
from local.slack import serve
from tests.handlers.factories import a_context
from tests.scenarios.sweep_in_memory import Clock, SimulatedSweep

CHANNEL, PLACE = "sweeps", "C01SWEEPS00"
ADA = Requester(user="U01ADALOVEL", user_name="ada", channel=PLACE)


class SlackSession:
    def __init__(self, simulation, slack, app, context):
        self.simulation, self.slack, self.app, self.context = simulation, slack, app, context

    async def rounds(self, number=1):
        for _ in range(number):
            await self.simulation.round()

    async def until(self, phase, most=40):
        for _ in range(most):
            if (await self.simulation.record()).phase is phase:
                return
            await self.simulation.round()
        raise AssertionError(f"it is {self.simulation.last.phase}: {self.thread()}")

    async def types(self, text, person="ada", rounds=2):
        """The ack, and the ephemeral messages of this user."""
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
        await self.context.background.finish(3)

    def parent(self):
        return next(m for m in self.slack.messages(CHANNEL) if m.get("thread_ts", m["ts"]) == m["ts"])

    def thread(self):
        return [m["text"] for m in self.slack.messages(CHANNEL, self.parent()["ts"])[1:]]


@asynccontextmanager
async def open_session(redis, **scenario):
    """Other sweeps' items stay in the queue; `rounds` are reconciles of this sweep."""
    slack = await serve()
    web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    scenario["sweep"] = {"requester": ADA} | scenario.get("sweep", {})
    simulation = SimulatedSweep(redis, Clock(None), **scenario)
    config = scenario.get("config", simulation.clients.config)
    clients = simulation.clients
    quiet = QuietHours(
        simulation.store,
        clients.queue,
        lambda: simulation.clients.config.people,
        simulation.clients.now,
    )
    posted = Slack(web, RateLimiter(redis), quiet=quiet)
    simulation.clients = replace(clients, slack=posted, config=config)
    context = a_context(redis, store=simulation.store, queue=Queue(redis, prefix="life:queue"), config=config)
    app = build(web, context, add_handlers)
    socket = Socket(app, slack.app_token)
    try:
        await socket.open()
        async with simulation.started():
            yield SlackSession(simulation, slack, app, context)
    finally:
        await socket.close_async()
        await slack.close()
