"""The HTTP server with its application, and a client of it."""

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.runtime.probes import Probes
from bot.text.masking import Mask
from bot.workspace_table import add_handlers
from handlers.app import build
from handlers.http_server import Http, SlackCalls, served
from local.slack import serve
from tests.handlers.factories import a_context
from tests.handlers.pages import no_refresh
from tests.handlers.signing import SECRET


@pytest.fixture
async def slack():
    slack = await serve()
    yield slack
    await slack.close()


@pytest.fixture
def context(redis):
    return a_context(redis)


@pytest.fixture
def app(slack, context):
    return build(AsyncWebClient(token=slack.bot_token, base_url=slack.api_url), context, add_handlers)


@pytest.fixture
async def probes():
    probes = Probes(lambda: False, Mask([SECRET]))
    yield probes
    await probes.close()


@pytest.fixture
async def http(probes):
    """The application, its address and a client."""
    app = Http(probes, no_refresh)
    async with (
        served(app, "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
    ):
        app.port, app.client = port, client
        yield app


@pytest.fixture
def listening(http, slack, context):
    web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    http.slack = SlackCalls(build(web, context, add_handlers, signing_secret=SECRET), SECRET)
    return http.client
