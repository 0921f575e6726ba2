"""The command `mcp`: an MCP server on standard input and output, whose tools call the HTTP API."""

import argparse
import asyncio
from contextlib import suppress
from typing import Any

from bot.remote.api import connect
from bot.remote.client import Client
from bot.remote.mcp_tools import server


def run_mcp(_arguments: argparse.Namespace) -> int:
    """Serve until standard input ends. Raises UserError without credentials."""
    calls = Remote(connect())
    with suppress(KeyboardInterrupt):
        server(lambda _: calls).run("stdio")
    return 0


PATIENCE = 10.0  # seconds; agents give up after 60, and then repeat what would still be sent here, too


class Remote:
    """The calls by HTTP, each in a thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        client.patience = PATIENCE

    async def get(self, path: str, **query: object) -> Any:
        return await asyncio.to_thread(self._client.json, path, **query)

    async def post(self, path: str, body: dict[str, Any], key: str = "") -> Any:
        return await asyncio.to_thread(self._client.post, path, body, key)
