"""The picture of the dashboard, taken again with SWEEPBOT_PICTURES=1.

A real Prometheus scrapes two processes of the local world and answers the dashboard's own queries. They are
drawn in the dashboard's grid, because Grafana isn't a package of Debian.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Any

import aiohttp
import pytest
import yaml
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from tests.browser.test_pictures import IMAGES
from tests.deploy.test_monitoring import DASHBOARD
from tests.free_port import free_port
from tests.scenarios.local_world import APART, Instance, instance
from tests.servers import running

MAX_LEGEND = 8  # lines
UNITS = {"s": EngFormatter("s"), "bytes": EngFormatter("B"), "percentunit": PercentFormatter(1)}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("SWEEPBOT_PICTURES"), reason="SWEEPBOT_PICTURES is not set"),
    pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus isn't installed"),
]


@contextmanager
def prometheus(folder: Path, targets: list[int]) -> Iterator[str]:
    own, folder = free_port(), folder / "prometheus"
    folder.mkdir()
    scrape = {
        "job_name": "sweepbot",
        "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in targets]}],
    }
    config = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": [scrape]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{own}"]
    with running([*command, "--storage.tsdb.path=data"], own, folder / "log", cwd=folder):
        yield f"http://127.0.0.1:{own}"


@pytest.fixture
async def scraped(tmp_path: Path) -> AsyncIterator[tuple[Instance, list[int]]]:
    """An instance, and the ports of its two processes."""
    ports = [free_port(), free_port()]
    async with instance(tmp_path, bots=APART) as made:
        for command, port in zip(APART, ports, strict=True):
            made.here.env["HTTP_PORT"] = str(port)
            await made.kill(command)
        yield made, ports


async def test_picture_of_the_dashboard(scraped: tuple[Instance, list[int]], tmp_path: Path) -> None:
    made, ports = scraped
    begin = datetime.now(UTC).timestamp()
    with prometheus(tmp_path, ports) as url:
        sweep = await made.sweep("branch=main gpus=1 space=lr")
        failing = await made.sweep("branch=main gpus=1 space=crash", "grace")
        await sweep.posts("Results of", "results.csv")
        await failing.shows("Failed")
        await asyncio.sleep(10)
        window = {"start": begin, "end": datetime.now(UTC).timestamp(), "step": 2}
        async with aiohttp.ClientSession(url) as client:
            figure = await _drawn(client, window)
    figure.savefig(IMAGES / "dashboard.png")


async def _drawn(client: aiohttp.ClientSession, window: dict[str, Any]) -> Figure:
    panels = DASHBOARD["panels"]
    rows = max(panel["gridPos"]["y"] // panel["gridPos"]["h"] for panel in panels) + 1
    figure = Figure(figsize=(14, 2.6 * rows), dpi=100, layout="constrained")
    for panel in panels:
        place = panel["gridPos"]
        axes = figure.add_subplot(rows, 2, place["y"] // place["h"] * 2 + (place["x"] > 0) + 1)
        lines = [line for target in panel["targets"] for line in await _lines(client, target, window)]
        assert lines, panel["title"]
        _draw(axes, panel, lines)
    return figure


async def _lines(
    client: aiohttp.ClientSession, target: dict[str, str], window: dict[str, Any]
) -> list[tuple[str, list[list[Any]]]]:
    """Return each series with its legend: pairs of a time and a value."""
    async with client.get("/api/v1/query_range", params={"query": target["expr"], **window}) as answer:
        found = (await answer.json())["data"]["result"]
    legend = Template(target["legendFormat"].replace("{{", "${").replace("}}", "}"))
    return [(legend.safe_substitute(series["metric"]), series["values"]) for series in found]


def _draw(axes: Axes, panel: dict[str, Any], lines: list[tuple[str, list[list[Any]]]]) -> None:
    axes.set_title(panel["title"], loc="left", fontsize=11, fontweight="bold")
    for number, (name, values) in enumerate(lines):
        times = [datetime.fromtimestamp(at, UTC) for at, _ in values]
        axes.plot(times, [float(value) for _, value in values], label=name if number < MAX_LEGEND else None)
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S"))
    axes.xaxis.set_major_locator(AutoDateLocator(maxticks=5))
    if unit := UNITS.get(panel["fieldConfig"]["defaults"]["unit"]):
        axes.yaxis.set_major_formatter(unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
