"""Slack's side of a slash command: a signed HTTP call on a connection that stays open."""

import asyncio
import hashlib
import hmac
import itertools
import time
from contextlib import suppress
from typing import Self
from urllib.parse import urlencode

from bench.site import SIGNING_SECRET
from local.slack.workspace import ADA, TEAM

PATH = "/slack/events"
TIMEOUT = 60.0  # seconds for an answer
_numbers = itertools.count()


def command(text: str) -> dict[str, str]:
    """Return the payload of `/sweep TEXT`, with a trigger_id of its own."""
    return {
        "command": "/sweep",
        "text": text,
        "trigger_id": f"trigger-{next(_numbers)}",
        "user_id": ADA.id,
        "user_name": "ada",
        "channel_id": "C1",
        "team_id": TEAM["id"],
        "response_url": "https://hooks.slack.com/commands/1",
    }


class Line:
    """One keep-alive connection with a minimal HTTP client: its cost is part of every figure."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(self, text: str) -> float:
        """Send `/sweep TEXT`; return the seconds until its answer is here. Raises RuntimeError unless 200."""
        request = _request(urlencode(command(text)).encode())
        started = time.perf_counter()
        self._writer.write(request)
        async with asyncio.timeout(TIMEOUT):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            body = await self._reader.readexactly(int(length))
        seconds = time.perf_counter() - started
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(f"/sweep {text}: {head!r} {body!r}")
        return seconds

    def close(self) -> None:
        self._writer.close()


def _request(body: bytes) -> bytes:
    at = str(int(time.time()))
    digest = hmac.new(SIGNING_SECRET.encode(), b"v0:%s:%s" % (at.encode(), body), hashlib.sha256).hexdigest()
    headers = {
        "Host": "127.0.0.1",
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": str(len(body)),
        "X-Slack-Request-Timestamp": at,
        "X-Slack-Signature": f"v0={digest}",
    }
    lines = [f"POST {PATH} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


async def first_answer(port: int, text: str = "help", seconds: float = 120) -> None:
    """Wait until a process that starts answers a command. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while True:
            with suppress(OSError, RuntimeError, asyncio.IncompleteReadError):
                line = await Line.open(port)
                try:
                    await line.call(text)
                    return
                finally:
                    line.close()
            await asyncio.sleep(0.02)
