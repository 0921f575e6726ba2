"""Count the requests to a registry: all of them pass unchanged."""

from collections import Counter
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from local.serving import Server, listen

KEPT = ("Accept", "Content-Type", "Authorization")  # of a request; its Host header is unchanged
SHOWN = ("Content-Type", "Location", "Docker-Content-Digest", "WWW-Authenticate")


@dataclass
class Counts:
    """Bytes are of bodies: pushed to the registry and pulled from it."""

    requests: int = 0
    pushed: int = 0
    pulled: int = 0
    by_method: Counter[str] = field(default_factory=Counter)


class Relay:
    """Use `address` in place of the registry's; `take()` the counts since the last time."""

    def __init__(self, registry: str) -> None:
        self._registry, self._counts = registry, Counts()

    async def start(self) -> Server:
        app = web.Application(client_max_size=2**40)
        app.router.add_route("*", "/{path:.*}", self._pass)
        return await listen(app)

    def take(self) -> Counts:
        counts, self._counts = self._counts, Counts()
        return counts

    async def _pass(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {key: request.headers[key] for key in KEPT if key in request.headers}
        url = f"http://{self._registry}{request.raw_path}"
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method,
                aiohttp.client.URL(url, encoded=True),
                data=body or None,
                headers={**headers, "Host": request.host},
                allow_redirects=False,
            ) as answer,
        ):
            content = await answer.read()
            shown = {key: answer.headers[key] for key in SHOWN if key in answer.headers}
        self._counts.requests += 1
        self._counts.by_method[request.method] += 1
        self._counts.pushed += len(body)
        self._counts.pulled += len(content) if request.method == "GET" else 0
        return web.Response(status=answer.status, body=content, headers=shown)
