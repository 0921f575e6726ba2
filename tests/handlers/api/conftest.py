"""The API on a port of its own, and a token of U1 for it."""

import asyncio
from asyncio import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.config.permissions import Visitor
from bot.platform.storage.api_tokens import ApiTokens
from bot.sweep.questions.store import Questions
from handlers.api import app, calls, mcp
from handlers.api.callers import Callers
from handlers.http_server import served
from handlers.slash_sweep import _answer
from local.slack.workspace import ADA, TEAM, Channel
from tests.bot.factories import ADMIN, OWNER, STRANGER
from tests.handlers.signing import COMMAND


class NoAgents:
    """In place of the door of agents, whose tools take 20 ms to describe; test_agents.py has the real one."""

    def __init__(self, _api):
        pass

    @asynccontextmanager
    async def open(self):
        yield


@pytest.fixture
def agent_door():
    return NoAgents


@pytest.fixture(scope="session")
def openapi_once():
    """Describes the API once, which takes 14 ms."""
    return cache(calls.document)


@pytest.fixture
def context(context, redis):
    return replace(context, tokens=ApiTokens(redis))


@pytest.fixture
def typed(context):
    """`await typed(text)`: the private answer to `/sweep`."""

    async def answer(text, **fields):
        return await _answer(context, COMMAND | {"text": text} | fields, None)

    return answer


@pytest.fixture
async def token(typed):
    return token_in(await typed("token"))


def token_in(answer):
    return answer.split("`")[1]


@pytest.fixture
def questions(redis, context):
    return Questions(redis, context.queue)


@pytest.fixture
def stop():
    return asyncio.Event()


@pytest.fixture
async def api(slack, context, questions, stop, agent_door, openapi_once, monkeypatch):
    """A client without a token."""
    monkeypatch.setattr(mcp, "AgentDoor", agent_door)
    monkeypatch.setattr(app, "document", openapi_once)
    slack.workspace.users |= {user: replace(ADA, id=user) for user in ("U1", "U2", OWNER, STRANGER, ADMIN)}
    slack.workspace.channels["C1"] = Channel("C1", "one", set(slack.workspace.users))
    web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    home = Visitor(user="", team=TEAM["id"])
    callers = Callers(context, context.tokens, web, home)
    made, port, done = app.Api(context, callers, context.tokens, questions, stop), Future(), asyncio.Event()

    async def serve():  # in one task: a fixture can end in another one than it began in
        async with made.app() as served_app, served(served_app, "127.0.0.1", 0) as bound:
            port.set_result(bound)
            await done.wait()

    serving = asyncio.create_task(serve())
    await asyncio.wait([serving, port], return_when=asyncio.FIRST_COMPLETED)
    url, connector = f"http://127.0.0.1:{port.result()}", aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as client:
        client.port = port.result()
        yield client
    done.set()
    await serving


@pytest.fixture
def call(api, token):
    """`await call("GET", "/sweeps")`: the status and the JSON; `by=`: another token."""

    async def answer(method, path, command=None, *, key="", by="", **options):
        headers = {"Authorization": f"Bearer {by or token}"} | ({"Idempotency-Key": key} if key else {})
        body = None if command is None else {"command": command}
        url = f"/api/v1{path}"
        async with api.request(method, url, headers=headers, json=body, params=options) as found:
            return found.status, await found.json(content_type=None)

    return answer
