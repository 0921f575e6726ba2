"""Log, trace, and remember calls to other systems, with the work item that makes them.

A call that succeeded has level DEBUG: each step of each sweep makes some, and they would hide the rest of the
log. A failed one has INFO: its caller decides whether that is a problem, and logs it then.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from bot.core.errors import UserError
from k8s.api.errors import ApiError

log = logging.getLogger("sweepbot.calls")

MAX_ERROR = 300  # characters

Failures = dict[str, str]  # by service: the last error in words
Span = Callable[[str, dict[str, str]], AbstractContextManager[object]]  # of a name and attributes

_failures: ContextVar[Failures | None] = ContextVar("failures", default=None)
_span: Span | None = None  # set by bot.platform.runtime.tracing if traces are exported


@contextmanager
def remembering_failures() -> Iterator[Failures]:
    """Collect the failures of the calls made in the body, and in tasks started there."""
    found: Failures = {}
    token = _failures.set(found)
    try:
        yield found
    finally:
        _failures.reset(token)


def trace_with(span: Span | None) -> None:
    """Open such a span around each call and work item of this process; None: no spans."""
    global _span  # noqa: PLW0603 - one exporter per process, as in the SDK
    _span = span


def span(name: str, **attributes: str) -> AbstractContextManager[object]:
    return _span(name, attributes) if _span else nullcontext()


def log_call(service: str, operation: str, seconds: float, answer: str, *, failed: bool) -> None:
    """`answer`: "" for a result, else the error; "not found" can be an ordinary answer."""
    level = logging.INFO if failed else logging.DEBUG
    if log.isEnabledFor(level):
        what = f"{service} {operation}".strip()
        log.log(level, "call: %s in %.3f s: %s", what, seconds, answer or "ok")


def one_line(text: str) -> str:
    """Return the text's start, without a word that is cut: half a secret would not be masked."""
    whole = " ".join(text.split())
    start = whole[:MAX_ERROR]
    return whole if start == whole else start.rpartition(" ")[0] or start


def note_failure(service: str, error: Exception, text: str) -> None:
    """Remember the failure for `inspect`, unless it is an ordinary answer: not found, or changed since."""
    ordinary = isinstance(error, UserError) or (
        isinstance(error, ApiError) and (error.absent or error.status in {409, 410})
    )
    failures = _failures.get()
    if failures is not None and not ordinary:
        failures[service] = text
