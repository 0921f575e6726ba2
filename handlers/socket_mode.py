"""Receive Slack's calls over Socket Mode, a WebSocket that Sweepbot opens."""

import asyncio
from typing import Any

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp

from bot.platform.runtime.probes import ProbeFailedError

SHUTDOWN_TIMEOUT = 3.0  # seconds for calls in progress at shutdown; Slack waits no longer
DISPATCH_DELAY = 0.05  # seconds until a call that just arrived is in progress


class Socket(AsyncSocketModeHandler):
    def __init__(self, app: AsyncApp, app_token: str) -> None:
        super().__init__(app, app_token)
        self._in_progress: set[asyncio.Task[Any]] = set()

    async def handle(self, client: Any, req: Any) -> None:
        if task := asyncio.current_task():
            self._in_progress.add(task)
            task.add_done_callback(self._in_progress.discard)
        await super().handle(client, req)

    async def open(self) -> None:
        """Connect. Raises SlackApiError for a rejected token, where slack_sdk would retry forever."""
        answer = await self.client.web_client.apps_connections_open(app_token=self.app_token)
        self.client.wss_uri = answer["url"]
        await self.connect_async()  # type: ignore[no-untyped-call]

    async def connected(self) -> str:
        """Check the connection; reconnect if it is lost. Raises ProbeFailedError.

        slack_sdk 3.47 itself would retry a URL that is valid once.
        """
        if not await self.client.is_connected():
            self.client.wss_uri = None  # so that slack_sdk requests a new one
            raise ProbeFailedError("not connected to Slack")
        return "connected"

    async def finish(self) -> None:
        """Finish calls in progress, then disconnect."""
        await asyncio.sleep(DISPATCH_DELAY)
        if self._in_progress:
            await asyncio.wait(self._in_progress, timeout=SHUTDOWN_TIMEOUT)
        await self.close_async()  # type: ignore[no-untyped-call]
