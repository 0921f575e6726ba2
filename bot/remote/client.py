"""Calls of the HTTP API, repeated while the server doesn't answer, its stream of events, and the errors: no
certificate, a server that isn't Sweepbot's API, an answer that is too large.

By the standard library: one call at a time needs no event loop, and aiohttp takes 0.3 s to import.
"""

import json
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPResponse, IncompleteRead
from ssl import SSLCertVerificationError
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from bot import __version__
from bot.core.errors import RetryAfterError, UserError
from bot.remote.answers import ANOTHER, Answer, parsed
from bot.remote.credentials import RETRY, Credentials, JobCredentials

TIMEOUT = 30.0  # seconds without a byte of an answer
EVENTS_TIMEOUT = 45.0  # the same while nothing changes: three of the server's comments
MAX_PAGES = 1_000  # of a list
MAX_ANSWER = 64 * 2**20  # bytes
MAX_LINE = 2**20  # bytes of a line of events
MAX_WAIT = 60.0  # seconds, whatever Retry-After says
MAX_KEY = 200  # characters of an idempotency key
LOOK_SECONDS = 30.0  # between looks at a sweep while the token has no event stream left

Sweep = dict[str, Any]
JSON, CSV, EVENTS = "application/json", "text/csv", "text/event-stream"


class UnavailableError(UserError):
    """The server didn't answer at any attempt."""

    exit_code = 3


class _TooManyError(RetryAfterError):
    """The token makes too many calls, or follows too many sweeps at once."""


class NoRedirect(HTTPRedirectHandler):
    """The token goes only where its owner sent it."""

    def redirect_request(self, *_: object) -> None:
        return None


class Client:
    """`note` is called with a sentence when the first attempt of a call fails."""

    patience = MAX_WAIT  # seconds; a call that can only be repeated later fails

    def __init__(self, credentials: Credentials | JobCredentials, note: Callable[[str], None]) -> None:
        self._credentials, self._note = credentials, note
        self._opener = build_opener(NoRedirect)

    def csv(self, path: str, **query: object) -> str:
        """Return what a resource has. Raises UserError."""
        return self._answer(self._request(path, query), CSV)

    def json(self, path: str, **query: object) -> Answer:
        """Return the same, parsed."""
        return self._parsed(self._answer(self._request(path, query), JSON), path)

    def post(self, path: str, body: dict[str, Any], key: str = "") -> Answer:
        """Send a body and return the answer. `key`: the same is the same request. Raises UserError."""
        if key:
            check_key("key", key)
        headers = {"Content-Type": JSON} | ({"Idempotency-Key": key} if key else {})
        request = self._request(path, {}, json.dumps(body).encode(), headers)
        return self._parsed(self._answer(request, JSON), path)

    def pages(self, path: str, key: str, **query: object) -> Iterator[Any]:
        """Yield the elements of all pages of a list, from `cursor` on. Raises UserError."""
        cursors = {query.get("cursor")}
        while len(cursors) <= MAX_PAGES:
            page = self.json(path, **query)
            yield from page[key]
            if not page["next"]:
                return
            query["cursor"] = page["next"]
            if query["cursor"] in cursors:
                break
            cursors.add(query["cursor"])
        raise UserError(f"The list of {key} has no end: {ANOTHER}")

    def events(self, sweep: str) -> Iterator[Sweep]:
        """Yield the sweep now and after each change, up to its end. Raises UserError."""
        failures = 0
        while True:
            try:
                for found in self._events_until_closed(sweep):
                    failures = 0
                    yield found
                    if found["ended"]:
                        return
            except _TooManyError as busy:  # such as of a token that several CI jobs share
                time.sleep(min(max(busy.seconds, LOOK_SECONDS), MAX_WAIT))
                yield (found := self.json(of(sweep)))
                if found["ended"]:
                    return
            except (RetryAfterError, OSError, HTTPException) as error:
                failures += 1
                self._wait(failures, error)

    def _events_until_closed(self, sweep: str) -> Iterator[Sweep]:
        path = f"{of(sweep)}/events"
        with self._open(self._request(path, {}), EVENTS, EVENTS_TIMEOUT) as stream:
            for data in _messages(stream):
                yield self._parsed(data, path)
        raise RetryAfterError(f"{self._credentials.url} closed the connection.", 0)

    def _answer(self, request: Request, kind: str) -> str:
        failures = 0
        while True:
            try:
                with self._open(request, kind, TIMEOUT) as response:
                    return _content(response)
            except (RetryAfterError, OSError, HTTPException) as error:
                failures += 1
                self._wait(failures, error)

    def _request(
        self,
        path: str,
        query: dict[str, object],
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Request:
        given = {name: "true" if value is True else value for name, value in query.items() if value}
        url = f"{self._credentials.url}/api/v1{path}" + (
            f"?{urlencode(given, errors='replace')}" if given else ""
        )
        known = {
            "Authorization": f"Bearer {self._credentials.token}",
            "User-Agent": f"sweepbot/{__version__}",
        }
        return Request(url, body, known | (headers or {}))  # noqa: S310 - Credentials allows http and https only

    def _open(self, request: Request, kind: str, timeout: float) -> HTTPResponse:
        """Raises UserError if the request is refused, RetryAfterError if it can be repeated, and OSError."""
        try:
            response: HTTPResponse = self._opener.open(request, timeout=timeout)
        except HTTPError as error:
            with error:
                detail = self._detail(error)
            if error.code == 429 or error.code >= 500:
                refusal = _TooManyError if error.code == 429 else RetryAfterError
                raise refusal(detail, retry_after(error)) from None
            raise UserError(detail) from None
        if response.headers.get_content_type() != kind:  # such as a proxy's login page
            response.close()
            raise self._another()
        return response

    def _detail(self, error: HTTPError) -> str:
        """Return the server's sentence; another server, such as a proxy, has none."""
        if to := error.headers.get("Location"):
            return f"{self._credentials.url} redirects to {to[:MAX_KEY]}. *Fix:* Check the URL."
        try:
            return str(json.loads(error.read(MAX_LINE))["detail"])
        except (OSError, HTTPException, ValueError, TypeError, KeyError, RecursionError):
            return f"{self._credentials.url} answers with status {error.code}. *Fix:* Check the URL."

    def _parsed(self, text: str, path: str) -> Answer:
        if (found := parsed(text, path)) is None:
            raise self._another()
        return found

    def _another(self) -> UserError:
        return UserError(f"{self._credentials.url} isn't Sweepbot's API. *Fix:* Check the URL.")

    def _wait(self, failures: int, error: Exception) -> None:
        """Wait before the next attempt. Raises UnavailableError if there is none."""
        if isinstance(error, RetryAfterError):
            reason, seconds = str(error), min(error.seconds, MAX_WAIT)
        else:
            cause = getattr(error, "reason", error)
            reason, seconds = f"{self._credentials.url} can't be reached: {cause}.", 0.0
            if isinstance(cause, SSLCertVerificationError):
                reason += " *Fix:* Set SSL_CERT_FILE to your certificate authority's file."
        if RETRY.exhausted(failures) or seconds > self.patience:
            raise UnavailableError(reason)
        if failures == 1:
            self._note(f"{reason} Retrying.")
        time.sleep(max(RETRY.seconds(failures), seconds))


def check_key(name: str, key: str) -> None:
    """Raise UserError for an idempotency key that can't be sent."""
    if not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise UserError(f"{name} must be 1 to {MAX_KEY} printable ASCII characters.")


def of(sweep: str) -> str:
    """Return the path of a sweep."""
    return f"/sweeps/{quote(sweep, safe='', errors='replace')}"


def needs_person(sweep: Sweep) -> bool:
    """Return whether only a command lets it continue: it is on hold, paused, or waits for approval."""
    return sweep["state"] in {"held", "paused"} or (sweep["state"] == "opening" and bool(sweep["reason"]))


def _content(response: HTTPResponse) -> str:
    """Return the whole text. Raises UserError if it is too large, and IncompleteRead."""
    content = response.read(MAX_ANSWER + 1)
    if len(content) > MAX_ANSWER:
        raise UserError(f"The answer is larger than {MAX_ANSWER // 2**20} MiB.")
    if response.length:  # bytes that didn't come: `read` with a size returns what there is
        raise IncompleteRead(content, response.length)
    return content.decode(errors="replace")


def _messages(stream: HTTPResponse) -> Iterator[str]:
    """Yield the data of server-sent events; of an incomplete one at the end, none."""
    data: list[str] = []
    while line := stream.readline(MAX_LINE):
        text = line.decode(errors="replace").rstrip("\r\n")
        if text.startswith("data:"):
            data.append(text.removeprefix("data:"))
        elif not text and data:
            yield "\n".join(data)
            data = []


def retry_after(error: HTTPError) -> float:
    text = error.headers.get("Retry-After")
    return float(text) if text and text.isdecimal() else 0.0
