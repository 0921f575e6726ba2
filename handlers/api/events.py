"""Follow a sweep by server-sent events: its state at once, and at each change until its end."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from time import monotonic

from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from bot.core.record import SweepRecord
from bot.platform.storage.api_tokens import ApiTokens
from bot.platform.storage.sweeps import Store
from handlers.api.sweeps import shown
from handlers.context import ACK_TIMEOUT

POLL_SECONDS = 1.0  # between looks at the record's version
COMMENT_SECONDS = 15.0  # between comments, for proxies that close idle connections; then the token is checked
MAX_STREAMS, MAX_PER_TOKEN = 200, 4  # open ones of this process


class Streams:
    def __init__(self, store: Store, tokens: ApiTokens, stop: asyncio.Event) -> None:
        self._store, self._tokens, self._stop = store, tokens, stop
        self._open = Counter[str]()  # by token

    def open(self, sweep: SweepRecord, token: str) -> StreamingResponse:
        """Return the response. `token`: its hash. Raises HTTPException if too many streams are open."""
        if self._open[token] >= MAX_PER_TOKEN or self._open.total() >= MAX_STREAMS:
            detail = f"Too many open event streams; a token can have {MAX_PER_TOKEN}. Close one first."
            raise HTTPException(429, detail, {"Retry-After": "15"})
        return _Stream(self._open, token, self._events(sweep, token))

    async def _events(self, sweep: SweepRecord, token: str) -> AsyncIterator[str]:
        sent, commented = "", monotonic()
        while True:
            if (data := json.dumps(shown(sweep))) != sent:
                sent = data
                yield f"event: sweep\ndata: {data}\n\n"
            if sweep.phase.final:
                return
            if monotonic() - commented >= COMMENT_SECONDS:
                commented = monotonic()
                yield ": still here\n\n"
                if not await self._is_valid(token):
                    return
            if await self._stopped():
                return
            if (changed := await self._changed(sweep)) is None:
                return
            sweep = changed

    async def _stopped(self) -> bool:
        """Wait until the next look; return whether the process stops."""
        try:
            async with asyncio.timeout(POLL_SECONDS):
                return await self._stop.wait()
        except TimeoutError:
            return False

    async def _changed(self, sweep: SweepRecord) -> SweepRecord | None:
        """Return the sweep as it is now; None if it can't be followed any more."""
        try:
            async with asyncio.timeout(ACK_TIMEOUT):
                if await self._store.versions([sweep.id]) == [sweep.version]:
                    return sweep
                return await self._store.get(sweep.id)
        except (RedisError, TimeoutError):
            return sweep
        except ValueError:  # of a newer version: the client asks the next process
            return None

    async def _is_valid(self, token: str) -> bool:
        try:
            async with asyncio.timeout(ACK_TIMEOUT):
                return await self._tokens.is_valid(token)
        except (RedisError, TimeoutError):
            return True


class _Stream(StreamingResponse):
    """Counts as open until the client is gone."""

    def __init__(self, open_: Counter[str], token: str, events: AsyncIterator[str]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._open, self._token = open_, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._open[self._token] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open[self._token] -= 1
            self._open += Counter()  # drops zeros
