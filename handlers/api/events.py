"""Follow a sweep by server-sent events, or by calls that wait (`wait=`): its state at once, then at each
change or its end, until the client hangs up.

All streams share one look at Redis: each with its own would take a connection from everybody else.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic

from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from bot.core.record import Phase, SweepRecord
from bot.platform.storage.sweeps import Store
from bot.sweep.model.api_sweep import awaits_approval, shown
from bot.text.masking import Mask
from handlers.api.callers import Caller
from handlers.api.sweeps import new_name
from handlers.context import ACK_TIMEOUT

POLL_SECONDS = 1.0  # between looks at the records' versions
COMMENT_SECONDS = 15.0  # between comments, for proxies that close idle connections; then the token is checked
MAX_SECONDS = 3600.0  # of one stream; who connects again is looked up in Slack again
MAX_STREAMS, MAX_PER_TOKEN = 200, 4  # open ones of this process, with calls that wait
AWAITS_PERSON = {Phase.HELD, Phase.PAUSED}  # only a command ends them


class Streams:
    def __init__(self, store: Store, mask: Mask, stop: asyncio.Event) -> None:
        self._store, self._mask, self._stop = store, mask, stop
        self._by_token, self._by_sweep = Counter[str](), Counter[str]()  # open ones
        self._sweeps: dict[str, SweepRecord] = {}  # those that are followed, as last seen
        self._look: asyncio.Task[None] | None = None  # the next one

    def open(self, sweep: SweepRecord, caller: Caller) -> StreamingResponse:
        """Return the response. Raises HTTPException if too many streams are open."""
        self._check_count(caller.token)
        return _Stream(self._events(sweep.id, caller), self._counted(sweep, caller.token))

    async def waited(self, sweep: SweepRecord, caller: Caller, seconds: float) -> SweepRecord:
        """Return the sweep once it has ended or needs a person, or after the time; its new name, if any.

        Also if the client is gone: those that time out and call again would soon have too many open calls.

        Raises HTTPException as `open`.
        """
        self._check_count(caller.token)
        end = monotonic() + seconds
        with self._counted(sweep, caller.token):
            while True:
                found = self._sweeps[sweep.id]
                awaits_person = found.phase in AWAITS_PERSON or awaits_approval(found)
                if found.phase.final or awaits_person or self._stop.is_set():
                    return found
                if (left := end - monotonic()) <= 0 or await caller.is_gone():
                    return found
                await self._changed(left)

    @contextmanager
    def _counted(self, sweep: SweepRecord, token: str) -> Iterator[None]:
        self._by_token[token] += 1
        self._by_sweep[sweep.id] += 1
        self._sweeps[sweep.id] = max(self._sweeps.get(sweep.id, sweep), sweep, key=lambda each: each.version)
        try:
            yield
        finally:
            self._by_token -= Counter([token])
            self._by_sweep -= Counter([sweep.id])
            if sweep.id not in self._by_sweep:
                del self._sweeps[sweep.id]

    async def _events(self, sweep_id: str, caller: Caller) -> AsyncIterator[str]:
        sent, began = "", monotonic()
        commented, seen = began, None
        while True:
            sweep = self._sweeps[sweep_id]
            if new_name(sweep) or monotonic() - began > MAX_SECONDS:
                return
            if sweep is not seen and (data := shown(sweep, self._mask).model_dump_json()) != sent:
                sent = data
                yield f"event: sweep\ndata: {data}\n\n"
            seen = sweep  # masking takes a while
            if sweep.phase.final:
                return
            if monotonic() - commented >= COMMENT_SECONDS:
                commented = monotonic()
                yield ": still here\n\n"
                if not await _is_valid(caller):
                    return
            await self._changed()
            if self._stop.is_set():
                return

    def _check_count(self, token: str) -> None:
        if self._by_token[token] >= MAX_PER_TOKEN or self._by_token.total() >= MAX_STREAMS:
            detail = f"Too many open event streams; a token can have {MAX_PER_TOKEN}. Close one first."
            raise HTTPException(429, detail, {"Retry-After": "15"})

    async def _changed(self, seconds: float | None = None) -> None:
        """Wait for the next look at the sweeps, so many seconds at most."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._look_again())
        await asyncio.wait([self._look], timeout=seconds)

    async def _look_again(self) -> None:
        """Wait, until the process stops at most, and read the sweeps that were saved since the last look."""
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._stop.wait()
                return
        except TimeoutError:
            pass
        ids = [*self._sweeps]
        try:
            async with asyncio.timeout(ACK_TIMEOUT):
                versions = dict(zip(ids, await self._store.versions(ids), strict=True))
                saved = [
                    each
                    for each in self._sweeps.values()
                    if versions.get(each.id) not in {None, each.version}
                ]
                found = await self._store.records([each.id for each in saved])
        except (RedisError, TimeoutError):
            return
        self._sweeps |= {each.id: each for each in found if each.id in self._sweeps}


async def _is_valid(caller: Caller) -> bool:
    try:
        async with asyncio.timeout(ACK_TIMEOUT):
            return await caller.is_valid()
    except (RedisError, TimeoutError):
        return True


class _Stream(StreamingResponse):
    """Counts as open until the client is gone."""

    def __init__(self, events: AsyncIterator[str], counted: AbstractContextManager[None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body"})
            return
        with self._counted:
            await super().__call__(scope, receive, send)
