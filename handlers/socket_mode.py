"""Socket Mode: we call Slack, and its calls come down that line."""

import asyncio
from typing import Any

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp

from bot.runtime.probes import ProbeFailedError

FINISH = 3.0  # seconds for calls under way at the end: Slack waits no longer for an answer
LAST_MOMENT = 0.05  # seconds until what has just come in is under way, too


class Socket(AsyncSocketModeHandler):
    def __init__(self, app: AsyncApp, app_token: str) -> None:
        super().__init__(app, app_token)
        self._under_way: set[asyncio.Task[Any]] = set()

    async def handle(self, client: Any, req: Any) -> None:
        if task := asyncio.current_task():
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        await super().handle(client, req)

    async def open(self) -> None:
        """Raises SlackApiError for a token that Slack refuses, for which the client itself would try on."""
        answer = await self.client.web_client.apps_connections_open(app_token=self.app_token)
        self.client.wss_uri = answer["url"]
        await self.connect_async()  # type: ignore[no-untyped-call]

    async def connected(self) -> str:
        """Raises ProbeFailedError. Also reconnects: slack_sdk 3.47 retries a URL that is good for one use."""
        if not await self.client.is_connected():
            self.client.wss_uri = None  # so that it asks for a new one
            raise ProbeFailedError("not connected to Slack")
        return "connected"

    async def finish(self) -> None:
        """Answer what has come in, then hang up."""
        await asyncio.sleep(LAST_MOMENT)
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=FINISH)
        await self.close_async()  # type: ignore[no-untyped-call]
