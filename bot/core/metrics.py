"""Sweepbot's own Prometheus metrics of calls, work items, and workers, served on /metrics: names, labels, and
buckets; the log, the trace, and the memory of calls to other systems, with the work item that makes them.

A call that succeeded is logged with level DEBUG: each step of each sweep makes some, and they would hide the
rest of the log. A failed one has INFO: its caller decides whether that is a problem, and logs it then.

Names and units follow https://prometheus.io/docs/practices/naming/. Labels have few values:
services, kinds, phases, namespaces, and clusters; never a sweep, a person, or a channel.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from bot.core.errors import RetryAfterError, UserError
from bot.core.work_item import ItemKind
from k8s.api.errors import ApiError

log = logging.getLogger("sweepbot.calls")

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

CALL_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
ITEM_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)

gauge = partial(Gauge, registry=REGISTRY)
counter = partial(Counter, registry=REGISTRY)
histogram = partial(Histogram, registry=REGISTRY)

CALLS = counter("sweepbot_calls", "Calls to other systems.", ["service", "result"])
CALL_SECONDS = histogram(
    "sweepbot_call_duration_seconds", "Duration of calls to other systems.", ["service"], buckets=CALL_BUCKETS
)
ITEMS = counter("sweepbot_work_items", "Runs of work items.", ["kind", "result"])
ITEM_SECONDS = histogram(
    "sweepbot_work_item_duration_seconds", "Duration of a work item's run.", ["kind"], buckets=ITEM_BUCKETS
)
REACTION_SECONDS = histogram(
    "sweepbot_slack_reaction_seconds",
    "Time from when a sweep is due (a cluster event, a command, or a timer) to its first call to Slack.",
    buckets=ITEM_BUCKETS,
)
WATCH_RESPONSE = gauge(
    "sweepbot_watch_last_response_timestamp_seconds",
    "When the API server last answered a watch.",
    ["kind", "namespace"],
)
WATCH_FAILURES = counter("sweepbot_watch_failures", "Interrupted watches and lists.", ["kind"])
CLUSTER_RESPONSE = gauge(
    "sweepbot_cluster_last_response_timestamp_seconds",
    "When a cluster of trials, other than the main cluster, last answered a watch.",
    ["cluster"],
)
LEADER = gauge("sweepbot_leader", "1 in the process that holds the lease.", ["lease"])
GPU_FIGURES = gauge(
    "sweepbot_gpu_figures_timestamp_seconds",
    "Time of the latest GPU samples and of the end of the latest complete hour; set by the leader.",
    ["figures"],
)

UNCONFIRMED_UNSAVED = gauge(
    "sweepbot_unconfirmed_unsaved", "1 if acknowledged requests can't be stored on the disk of `serve`."
)
RUNBOOK = gauge(
    "sweepbot_runbook_info",
    "1, with the URL of the page about alerts, for their annotation `runbook_url`; absent if it is unknown.",
    ["url"],
)
CONFIG_VALID = gauge(
    "sweepbot_config_last_reload_successful",
    "1 if the configuration file is in effect; 0 if it has errors and an earlier one is.",
)
CONFIG_READ_AT = gauge(
    "sweepbot_config_last_reload_success_timestamp_seconds", "When the configuration in effect was read."
)

MAX_ERROR = 300  # characters

Failures = dict[str, str]  # by service: the last error in words
Span = Callable[[str, dict[str, str]], AbstractContextManager[object]]  # of a name and attributes

_failures: ContextVar[Failures | None] = ContextVar("failures", default=None)
_span: Span | None = None  # set by bot.platform.runtime.tracing if traces are exported


@dataclass
class _Run:
    """A running work item: when it was due, by time.monotonic(); None once Slack has been called."""

    due: float | None


_run: ContextVar[_Run | None] = ContextVar("run", default=None)


@contextmanager
def measured(
    service: str,
    is_answer: Callable[[Exception], bool] = lambda _: False,
    operation: str = "",
    describe: Callable[[Exception], str] = str,
) -> Iterator[None]:
    """Count, time, log, and trace the call in the body. A cancelled call isn't counted.

    Args:
        is_answer: whether an exception is the service's normal answer.
        operation: what is called, such as a method and a path, for the log and the trace.
        describe: returns an exception's text.
    """
    # Both exist from the first call on, because an error rate needs a series that starts at 0.
    counts = {result: CALLS.labels(service, result) for result in ("ok", "error")}
    started, result, failure = monotonic(), "", ""
    try:
        with span(service, service=service, operation=operation):
            yield
        result = "ok"
    except Exception as error:
        result = "ok" if is_answer(error) else "error"
        failure = one_line(describe(error) or type(error).__name__)
        note_failure(service, error, failure)
        raise
    finally:
        if result:
            seconds = monotonic() - started
            counts[result].inc()
            CALL_SECONDS.labels(service).observe(seconds)
            log_call(service, operation, seconds, failure, failed=result == "error")


@contextmanager
def running(kind: str, waited: float, item: str = "") -> Iterator[None]:
    """Count, time, and trace a work item's run. `waited`: seconds since it was due."""
    started, result = monotonic(), "cancelled"
    token = _run.set(_Run(started - waited if kind == ItemKind.SWEEP else None))
    try:
        with span(f"work item {kind}", kind=kind, item=item):
            yield
        result = "ok"
    except RetryAfterError:
        result = "postponed"
        raise
    except Exception:
        result = "failed"
        raise
    finally:
        _run.reset(token)
        ITEMS.labels(kind, result).inc()
        ITEM_SECONDS.labels(kind).observe(monotonic() - started)


def slack_called() -> None:
    """Record the reaction time of the running work item, at its first call to Slack."""
    run = _run.get()
    if run and run.due is not None:
        REACTION_SECONDS.observe(monotonic() - run.due)
        run.due = None


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
