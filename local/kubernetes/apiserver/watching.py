"""Serve watches as the API server does."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from local.kubernetes.apiserver.kinds import Cause, Kind, Object, Refused, bad_request, invalid, refusal
from local.kubernetes.apiserver.selectors import Matcher, matcher
from local.kubernetes.apiserver.store import Change, Store

LONGEST = 1800.0  # seconds of a watch without timeoutSeconds
BOOKMARK_EVERY = 60.0
LAST_BOOKMARK = 2.0  # seconds before the end


def version_of(query: Mapping[str, str], current: int) -> int:
    """Return the requested resourceVersion, 0 for any. Raises Refused: 400, or 504 for a future one."""
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise bad_request(f"invalid resource version: {_not_a_number(text)}")
    if int(text) > current:
        details = {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }
        message = f"Timeout: Too large resource version: {text}, current: {current}"
        raise refusal(504, message, "Timeout", details)
    return int(text)


def _not_a_number(text: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


async def stream(store: Store, kind: Kind, namespace: str | None, request: web.Request) -> web.StreamResponse:
    """Stream a watch until its timeout or until the client disconnects."""
    since = _start(request.query)
    matches = matcher(kind.name, namespace, request.query)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    start = since or store.version
    watch = Watch(response, kind, matches, start)
    try:
        queue = store.follow(watch.seen)
    except Refused as expired:  # the real server has also sent status 200 by then
        await watch.send("ERROR", expired.body)
        return response
    try:
        for obj in [] if since else list(store.peek(kind.name, namespace)):
            await watch.push(Change(watch.seen, "ADDED", obj, None))
        # A watch from a future version gets nothing, not even bookmarks, until that version.
        wants = request.query.get("allowWatchBookmarks") in ("1", "true") and since <= store.version
        # The real watch cache sends none before the first event of that kind after the watch's version.
        bookmarks = lambda: wants and store.changed.get(kind.name, 0) > start  # noqa: E731
        await watch.run(queue, float(request.query.get("timeoutSeconds") or LONGEST), bookmarks)
    finally:
        store.unfollow(queue)
    return response


def _start(query: Mapping[str, str]) -> int:
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise refusal(500, _not_a_number(text))  # without a reason [10-watch-rv-invalid]
    if "sendInitialEvents" in query:
        why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        cause = Cause("sendInitialEvents", f"Forbidden: {why}", "FieldValueForbidden")
        raise invalid("ListOptions.meta.k8s.io", {"group": "meta.k8s.io", "kind": "ListOptions"}, [cause])
    return int(text)


@dataclass
class Watch:
    """One client's watch. `seen`: the last version it has been sent."""

    response: web.StreamResponse
    kind: Kind
    matches: Matcher
    seen: int

    async def run(self, queue: asyncio.Queue[Change], seconds: float, bookmarks: Callable[[], bool]) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        bookmark = _next_bookmark(clock(), end)
        while clock() < end:
            try:
                async with asyncio.timeout_at(min(bookmark, end)):
                    change = await queue.get()
            except TimeoutError:
                if bookmarks() and bookmark < end:
                    await self.bookmark()
                bookmark = _next_bookmark(clock(), end)
            else:
                if change.version > self.seen:
                    await self.push(change)

    async def push(self, change: Change) -> None:
        """Objects that leave the selector are DELETED, those that enter it ADDED [10-watch-label-leaves]."""
        version, type_, obj, before = change
        self.seen = max(self.seen, version)
        is_in, was_in = self.matches(obj), before is not None and self.matches(before)
        if type_ == "DELETED" or (was_in and not is_in):
            if was_in and before:
                meta = {**before["metadata"], "resourceVersion": obj["metadata"]["resourceVersion"]}
                await self.send("DELETED", obj if is_in else {**before, "metadata": meta})
        elif is_in:
            await self.send("MODIFIED" if was_in else "ADDED", obj)

    async def bookmark(self) -> None:
        head = {"kind": self.kind.name, "apiVersion": self.kind.api_version}
        await self.send("BOOKMARK", {**head, "metadata": {"resourceVersion": str(self.seen)}})

    async def send(self, type_: str, obj: Object | str) -> None:
        await self.response.write(json.dumps({"type": type_, "object": obj}).encode() + b"\n")


def _next_bookmark(now: float, end: float) -> float:
    """Send bookmarks every minute and shortly before the end, as the real watch cache does."""
    before_end = end - LAST_BOOKMARK
    return min(now + BOOKMARK_EVERY, before_end) if now < before_end else now + BOOKMARK_EVERY
