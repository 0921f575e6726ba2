"""Socket Mode: how Slack calls the bot. https://docs.slack.dev/apis/events-api/using-socket-mode"""

import asyncio
import secrets
import uuid
from typing import Any

from aiohttp import WSMsgType, web

from local.slack.workspace import APP_ID

Json = dict[str, Any]

MAX_CONNECTIONS = 10
DEBUG = {"host": "applink-local", "build_number": 1, "approximate_connection_time": 18060}


class UnansweredError(Exception):
    """No connection acknowledged in time. Slack sends commands and clicks only once."""


class SocketMode:
    def __init__(self, ack_seconds: float) -> None:
        self.ack_seconds = ack_seconds
        self.connections: list[web.WebSocketResponse] = []
        self._tickets: set[str] = set()
        self._waiting: dict[str, asyncio.Future[Json]] = {}

    def ticket(self) -> str:
        """Return a URL for one connection, valid once."""
        self._tickets.add(ticket := str(uuid.uuid4()))
        return ticket

    async def link(self, request: web.Request) -> web.WebSocketResponse:
        if (ticket := request.query.get("ticket", "")) not in self._tickets:
            raise web.HTTPUnauthorized
        self._tickets.remove(ticket)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if len(self.connections) >= MAX_CONNECTIONS:
            full = {"type": "disconnect", "reason": "too_many_websockets", "debug_info": DEBUG}
            await socket.send_json(full)
            return socket
        self.connections.append(socket)
        app = {"num_connections": len(self.connections), "connection_info": {"app_id": APP_ID}}
        await socket.send_json({"type": "hello", "debug_info": DEBUG, **app})
        async for frame in socket:
            if frame.type is WSMsgType.TEXT:
                self._receive(frame.json())
        self.connections = [other for other in self.connections if other is not socket]
        return socket

    def _receive(self, answer: Json) -> None:
        waiting = self._waiting.get(answer.get("envelope_id", ""))
        if waiting and not waiting.done():
            waiting.set_result(answer.get("payload") or {})

    async def deliver(self, kind: str, payload: Json, **retry: Any) -> Json:
        """Send the payload to one of the connections; return the acknowledgement's payload, often {}."""
        if not self.connections:
            raise UnansweredError("no app is connected")
        envelope_id = str(uuid.uuid4())
        envelope = {"envelope_id": envelope_id, "type": kind} | retry
        envelope["accepts_response_payload"] = kind != "events_api"
        self._waiting[envelope_id] = asyncio.get_running_loop().create_future()
        try:
            await secrets.choice(self.connections).send_json({**envelope, "payload": payload})
            return await asyncio.wait_for(self._waiting[envelope_id], self.ack_seconds)
        except (TimeoutError, ConnectionError) as error:
            raise UnansweredError(kind) from error
        finally:
            del self._waiting[envelope_id]

    async def drop(self) -> None:
        """Close every connection, as Slack does regularly; apps must reconnect."""
        dropped, self.connections = self.connections, []
        for socket in dropped:
            await socket.close()
