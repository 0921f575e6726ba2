"""A local Slack, and a real Bolt app connected to it over Socket Mode."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from local.slack import Slack, serve


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    slack = await serve(ack_seconds=60)
    yield slack
    await slack.close()


@pytest.fixture
def web(slack: Slack) -> AsyncWebClient:
    return AsyncWebClient(slack.bot_token, base_url=slack.api_url, retry_handlers=[])


@pytest.fixture
async def app(slack: Slack) -> AsyncIterator[AsyncApp]:
    client = AsyncWebClient(slack.bot_token, base_url=slack.api_url)
    app = AsyncApp(client=client, process_before_response=True)
    handler = AsyncSocketModeHandler(app, slack.app_token, ping_interval=1)
    await handler.connect_async()
    await wait_until("the app is connected", lambda: slack.sockets.connections)
    yield app
    await handler.close_async()


async def wait_until(fact: str, holds: Callable[[], Any], seconds: float = 200) -> Any:
    async with asyncio.timeout(seconds):
        while not (found := holds()):  # noqa: ASYNC110 - the fact has no event
            await asyncio.sleep(0.005)
    return found


@pytest.fixture
def until() -> Callable[..., Any]:
    return wait_until
