"""The connection to Slack: its state, its return after a cut, and its end after the last response."""

import asyncio

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.runtime.probes import ProbeFailedError
from handlers.app import build
from handlers.socket_mode import Socket

COMMAND = "branch=main space=lr"


@pytest.fixture
async def socket(slack, context):
    web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    socket = Socket(build(web, context), slack.app_token)
    socket.client.ping_interval = 0.1  # seconds; also between two tries to connect
    yield socket
    await socket.close_async()


async def is_connected(socket):
    try:
        return await socket.connected()
    except ProbeFailedError:
        return False


async def test_socket_mode_probe_reports_its_connection(socket, slack, wait_until):
    assert not await is_connected(socket)
    await socket.open()
    assert await is_connected(socket)
    slack.sockets.ticket = lambda: "refused"
    await slack.sockets.drop()
    await wait_until(lambda: not_(is_connected(socket)), "the cut shows")
    del slack.sockets.ticket
    await wait_until(lambda: is_connected(socket), "it is back, though its last address was refused")
    assert await slack.command("ada", "sweeps", "/sweep", COMMAND)


async def not_(answer):
    return not await answer


async def test_socket_mode_with_an_invalid_token_stops_the_start(slack, context):
    web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    socket = Socket(build(web, context), "xapp-wrong")
    with pytest.raises(SlackApiError, match="invalid_auth"):
        await socket.open()
    await socket.close_async()


async def test_socket_mode_close_waits_for_running_handlers(socket, slack, context, monkeypatch):
    await socket.open()
    started, go_on = asyncio.Event(), asyncio.Event()
    create = context.store.create

    async def slow(*arguments, **more):
        started.set()
        await go_on.wait()
        return await create(*arguments, **more)

    monkeypatch.setattr(context.store, "create", slow)
    typed = asyncio.create_task(slack.command("ada", "sweeps", "/sweep", COMMAND))
    await started.wait()
    monkeypatch.setattr("handlers.socket_mode.DISPATCH_DELAY", 0)
    finishing = asyncio.create_task(socket.finish())
    await asyncio.wait([finishing], timeout=0.05)
    assert not finishing.done()
    assert await is_connected(socket)
    go_on.set()
    assert "queued." in await typed
    await finishing
    assert not await is_connected(socket)
    assert len(await context.store.active()) == 1


async def test_socket_mode_close_does_not_wait_for_an_endless_handler(socket, slack, context, monkeypatch):
    await socket.open()
    started = asyncio.Event()

    async def endless(*_, **__):
        started.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(context.store, "create", endless)
    monkeypatch.setattr("handlers.socket_mode.SHUTDOWN_TIMEOUT", 0.01)
    typed = asyncio.create_task(slack.command("ada", "sweeps", "/sweep", COMMAND))
    await started.wait()
    await socket.finish()
    typed.cancel()
