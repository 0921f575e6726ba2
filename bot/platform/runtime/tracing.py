"""Export OpenTelemetry traces: a span for each work item's run, and in it one for each call it makes.

Off unless the SDK's variable for an endpoint is set, and the SDK is imported only then
(https://opentelemetry.io/docs/specs/otel/protocol/exporter/). All its other variables apply: headers,
certificates, sampling, and resource attributes. A span has the sweep, but no text of a message or a log.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from bot.core.errors import UserError
from bot.core.metrics import trace_with
from bot.platform.runtime.log_format import current_sweep
from bot.text.masking import Mask

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
MAX_ERROR = 300  # characters
HINT = "*Fix:* Install it with `pip install 'sweepbot[tracing]'`, or unset the variable."


def start_tracing(environ: Mapping[str, str], mask: Mask) -> Callable[[], None]:
    """Start to export if an endpoint is set. Return a function that sends the last spans, and blocks.

    Raises UserError if the exporter isn't installed.
    """
    if not any(environ.get(name) for name in ENDPOINTS):
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise UserError(f"{ENDPOINTS[0]} is set, but {error.name} isn't installed. {HINT}") from None
    return trace_to(BatchSpanProcessor(OTLPSpanExporter()), environ, mask)


def trace_to(processor: "SpanProcessor", environ: Mapping[str, str], mask: Mask) -> Callable[[], None]:
    """Pass all spans to `processor`. Return a function that ends this, and blocks until they are sent."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if named else {"service.name": "sweepbot"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    trace_with(partial(_span, provider.get_tracer("sweepbot"), mask))

    def stop() -> None:
        trace_with(None)
        provider.shutdown()

    return stop


@contextmanager
def _span(tracer: "Tracer", mask: Mask, name: str, attributes: Mapping[str, str]) -> Iterator[None]:
    """The SDK's own recording of exceptions is off: their texts aren't masked."""
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

    shown = {f"sweepbot.{key}": mask(value) for key, value in attributes.items() if value}
    if sweep := current_sweep():
        shown["sweepbot.sweep"] = sweep
    with tracer.start_as_current_span(
        name, attributes=shown, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        except Exception as error:
            text = mask(str(error) or type(error).__name__)[:MAX_ERROR]
            span.set_status(Status(StatusCode.ERROR, text))
            raise
