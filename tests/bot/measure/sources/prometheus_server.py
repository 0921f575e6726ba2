"""A Prometheus whose history is a text: needs Debian's package `prometheus`, which includes promtool."""

import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests

from bot.measure.sources.prometheus import Prometheus
from tests.bot.measure.sources.reference_day import cluster
from tests.free_port import free_port
from tests.servers import running

NEEDS_PROMETHEUS = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="Debian's package prometheus isn't installed",
)
NEEDS_VICTORIA_METRICS = pytest.mark.skipif(
    not shutil.which("victoria-metrics"), reason="Debian's package victoria-metrics isn't installed"
)

# promtool reads the whole history once for each block, and makes one of each two hours unless told otherwise.
LONG_BLOCKS = "--max-block-duration=60h"


@contextmanager
def serving(folder: Path, history: str) -> Iterator[str]:
    (folder / "day.txt").write_text(history)
    made = ["promtool", "tsdb", "create-blocks-from", LONG_BLOCKS, "openmetrics", "day.txt", "data"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    (folder / "none.yml").write_text("{}")
    port = free_port()
    command = ["prometheus", "--config.file=none.yml", "--storage.tsdb.path=data"]
    command += ["--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}"]
    # A backfill has no staleness markers, which at a real scrape end a series with the next one.
    command += [f"--query.lookback-delta={cluster.SCRAPE}s"]
    with running(command, port, folder / "log", cwd=folder):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def serving_victoria_metrics(folder: Path, history: str) -> Iterator[str]:
    """`history`: with milliseconds in each time, as in the text that VictoriaMetrics reads."""
    port, most = free_port(), "-memory.allowedBytes=200MB"
    command = ["victoria-metrics", "-storageDataPath=data", f"-httpListenAddr=127.0.0.1:{port}", most]
    address = f"http://127.0.0.1:{port}"
    with running(command, port, folder / "log", cwd=folder):
        text = re.sub(r"\.(\d{3})$", r"\1", history, flags=re.MULTILINE)
        requests.post(f"{address}/api/v1/import/prometheus", text.encode(), timeout=60).raise_for_status()
        requests.get(f"{address}/internal/force_flush", timeout=60).raise_for_status()
        yield address


@asynccontextmanager
async def asking(served: str, wait_until: Any) -> AsyncIterator[Prometheus]:
    async def ready() -> bool:
        try:
            async with aiohttp.ClientSession() as web, web.get(f"{served}/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    await wait_until(ready, "Prometheus is ready")
    client = Prometheus(served)
    yield client
    await client.close()
