"""Traces of one work item's calls, by the SDK's in-memory exporter, and by OTLP to a server."""

import asyncio
import os
import subprocess
import sys

import pytest
from aiohttp import web
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from bot.core.errors import UserError
from bot.core.metrics import measured, running
from bot.platform.runtime import tracing
from bot.platform.runtime.log_format import about
from bot.text.masking import Mask
from local.serving import listen

SWEEP = "lr-brave-otter"
OFF = """
import sys
from bot.platform.runtime.tracing import start_tracing
start_tracing({}, None)
print(sys.modules)
"""


@pytest.fixture
def exporter():
    exporter = InMemorySpanExporter()
    stop = tracing.trace_to(SimpleSpanProcessor(exporter), {}, Mask(["hunter2secret"]))
    yield exporter
    stop()


async def a_run(error=None):
    with about(SWEEP), running("sweep", 0, SWEEP):
        with measured("kubernetes", operation="GET /api/v1/namespaces/sweeps/pods"):
            await asyncio.sleep(0)
        if error:
            with measured("git", operation="fetch"):
                raise error


async def test_tracing_nests_the_calls_in_the_span_of_the_work_item(exporter):
    await asyncio.gather(a_run(), a_run())
    calls = [span for span in exporter.get_finished_spans() if span.name == "kubernetes"]
    items = [span for span in exporter.get_finished_spans() if span.name == "work item sweep"]
    assert {span.parent.span_id for span in calls} == {span.context.span_id for span in items}
    assert len({span.context.trace_id for span in calls}) == 2
    assert calls[0].attributes == {
        "sweepbot.service": "kubernetes",
        "sweepbot.operation": "GET /api/v1/namespaces/sweeps/pods",
        "sweepbot.sweep": SWEEP,
    }
    assert calls[0].resource.attributes["service.name"] == "sweepbot"


async def test_tracing_of_a_failed_call_has_a_masked_error(exporter):
    with pytest.raises(OSError, match="down"):
        await a_run(OSError("https://bot:hunter2secret@git.example is down"))
    spans = {span.name: span for span in exporter.get_finished_spans()}
    for name in ("git", "work item sweep"):
        assert spans[name].status.status_code is StatusCode.ERROR
    assert "hunter2" not in "".join(span.to_json() for span in spans.values())
    assert "is down" in spans["git"].status.description


def test_tracing_is_off_without_an_endpoint_and_imports_no_sdk():
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, check=True)
    assert "opentelemetry" not in done.stdout


def test_tracing_without_the_exporter_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(UserError, match=r"sweepbot\[tracing\]"):
        tracing.start_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, Mask())


async def test_tracing_exports_to_the_endpoint_of_the_standard_variable(monkeypatch):
    received = []

    async def collect(request):
        received.append((request.path, await request.read()))
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", collect)
    server = await listen(app)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    stop = tracing.start_tracing(os.environ, Mask())
    await a_run()
    await asyncio.to_thread(stop)
    await server.close()
    assert {path for path, _ in received} == {"/v1/traces"}
    assert SWEEP.encode() in b"".join(body for _, body in received)
