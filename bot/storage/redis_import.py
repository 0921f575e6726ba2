"""Import redis-py without OpenTelemetry, which it imports where that is installed, for metrics of its own."""

import sys

OPTIONAL = "opentelemetry"


def import_redis() -> None:
    """Import redis-py before any other module does, unless OpenTelemetry is imported already.

    Sweepbot doesn't turn redis-py's metrics on, and what they need is a quarter of its import. Traces
    (`bot.runtime.tracing`) import OpenTelemetry later, if they are on.
    """
    if OPTIONAL in sys.modules:
        return
    sys.modules[OPTIONAL] = None  # type: ignore[assignment]  # an import of it then raises ImportError
    try:
        import redis.asyncio  # noqa: F401, PLC0415
    finally:
        del sys.modules[OPTIONAL]
