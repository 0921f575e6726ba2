"""MCP by HTTP: the tools of `sweepbot mcp`, for agents that reach the API with a token, and what its library
logs.

Each request stands alone, without a session, and each tool makes the API's own calls within this process,
with the request's token: permissions, limits, and sentences are those of the calls.
"""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from mcp.server.mcpserver import Context
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from bot.core.errors import UserError
from bot.remote.mcp_tools import server
from handlers.api.calls import PREFIX
from handlers.api.models import MAX_BODY
from handlers.http_server import Application

log = logging.getLogger(__name__)
logging.getLogger("mcp").setLevel(logging.WARNING)  # it would log the end of each call

PATH = f"{PREFIX}/mcp"


class AgentDoor:
    """Answers MCP requests while `open` runs. `api`: the application whose calls the tools make."""

    def __init__(self, api: Application) -> None:
        def calls(context: "Context[Any, Any]") -> InProcess:
            return InProcess(api, (context.headers or {}).get("authorization", ""))

        made = server(calls)
        made.streamable_http_app(
            stateless_http=True,
            max_request_body_size=MAX_BODY,
            # A web page can't know a token, so it can't use a name that it bound to this address.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._manager: StreamableHTTPSessionManager = made.session_manager

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer while the body runs. Its error is raised as it is: the manager would put it into a group."""
        failure: Exception | None = None
        async with self._manager.run():
            try:
                yield
            except Exception as error:  # noqa: BLE001
                failure = error
        if failure:
            raise failure

    def response(self, body: bytes) -> Response:
        """Return what answers a request with this body."""
        return _Answer(self._manager, body)


class _Answer(Response):
    def __init__(self, manager: StreamableHTTPSessionManager, body: bytes) -> None:
        super().__init__()
        self._manager, self._unread = manager, [body]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def replayed() -> Message:
            body = self._unread.pop() if self._unread else None
            return await receive() if body is None else {"type": "http.request", "body": body}

        await self._manager.handle_request(scope, replayed, send)


class InProcess:
    """The calls of one request's person."""

    def __init__(self, api: Application, authorization: str) -> None:
        self._api, self._authorization = api, authorization

    async def get(self, path: str, **query: object) -> Any:
        return await self._call("GET", path, urlencode({k: v for k, v in query.items() if v != ""}))

    async def post(self, path: str, body: dict[str, Any], key: str = "") -> Any:
        return await self._call("POST", path, "", json.dumps(body).encode(), key)

    async def _call(self, method: str, path: str, query: str, body: bytes = b"", key: str = "") -> Any:
        headers = {"authorization": self._authorization} | ({"idempotency-key": key} if key else {})
        scope = {
            "type": "http",
            "method": method,
            "path": f"{PREFIX}{path}",
            "query_string": query.encode(),
            "headers": [
                (name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()
            ],
        }
        status, content = 500, b""

        async def receive() -> Message:
            return {"type": "http.request", "body": body}

        async def send(message: Message) -> None:
            nonlocal status, content
            status = message.get("status", status)
            content += message.get("body", b"")

        try:
            await self._api(scope, receive, send)
        except Exception:  # the answer says so, without the cause
            log.exception("failed to answer a call of an agent")
        found = json.loads(content)
        if status >= 400:
            raise UserError(found["detail"])
        return found
