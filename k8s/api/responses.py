"""Read responses of the API server: texts of errors, also of a kind that isn't installed, Retry-After, the
end of a log, and the lines of a watch.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp

from k8s.api.errors import ApiError, UnreachableError

MAX_RETRY_AFTER = 60.0  # seconds
MAX_LOG = 1024 * 1024  # bytes: a single line can be a whole progress bar


def api_error(status: int, body: bytes, path: str) -> ApiError:
    try:
        return error_of_status(status, body, json.loads(body))
    except (ValueError, RecursionError):
        if status == 404:  # without a Status: no such API
            kind = path.removeprefix("/apis/")
            return ApiError(404, "", f"the cluster doesn't serve {kind}; is it installed?")
        return ApiError(status, "", excerpt(body))


def retry_after(text: str) -> float:
    """Return the seconds; 0 for a date, which only proxies send."""
    return min(float(text), MAX_RETRY_AFTER) if text.isdecimal() else 0


def error_of_status(status: int, body: bytes, found: Any) -> ApiError:
    if not isinstance(found, dict):
        return ApiError(status, "", excerpt(body))
    return ApiError(status, found.get("reason") or "", str(found.get("message") or "")[:500])


def excerpt(body: bytes) -> str:
    return body.decode(errors="replace").strip()[:500]


async def log_end(response: aiohttp.ClientResponse) -> bytes:
    """Return the end of the log, starting with a whole line or word: half a secret couldn't be masked."""
    log, was_cut = bytearray(), False
    with network_errors():
        async for some in response.content.iter_any():
            log += some
            was_cut = was_cut or len(log) > MAX_LOG
            if len(log) > 2 * MAX_LOG:  # not for each chunk: that would be quadratic
                del log[:-MAX_LOG]
    end = bytes(log[-MAX_LOG:])
    begin = end.find(b"\n", 0, -1) + 1 or end.find(b" ") + 1
    return end[begin:] if was_cut else end


async def lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield lines of any length: an object can exceed aiohttp's line limit."""
    partial = b""
    while True:
        with network_errors():
            chunk = await response.content.readany()
        if not chunk:
            return
        *whole, partial = (partial + chunk).split(b"\n")
        for line in filter(None, whole):
            yield line


@contextmanager
def network_errors() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
        raise UnreachableError(
            f"the API server is unreachable: {str(error) or type(error).__name__}"
        ) from error
