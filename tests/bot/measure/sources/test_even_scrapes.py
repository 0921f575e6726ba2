"""A real Prometheus with exporters of which the samples of two pods or slices could pass for more scrapes."""

from datetime import UTC, datetime, timedelta

import pytest

from bot.measure.gpus.models import HOUR
from bot.measure.sources.scrape_interval import IntervalProbe
from k8s.nodes.dcgm import ENGINE
from tests.bot.measure.sources.prometheus_server import NEEDS_PROMETHEUS, asking, serving

START = datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0) - timedelta(days=1)
SERIES = {  # by host, of its first GPU: the labels, the seconds between two scrapes, from, until
    "plain": [('pod="a"', 30, 0, 1800), ('pod="b"', 30, 1800, 3600)],
    "sliced": [('GPU_I_ID="1",pod="a"', 60, 0, 3600), ('GPU_I_ID="2",pod="b"', 60, 0, 3600)],
    "shared": [('pod="a"', 60, 0, 3600), ('pod="b"', 60, 0, 3600)],
    "often": [('pod="a"', 15, 0, 3600)],
}

pytestmark = [pytest.mark.slow, NEEDS_PROMETHEUS]


def history() -> str:
    lines = [f"# TYPE {ENGINE} gauge"]
    for host, series in SERIES.items():
        for labels, step, begin, end in series:
            its = f'Hostname="{host}",UUID="GPU-{host}",gpu="0",namespace="sweeps",{labels}'
            times = range(begin + 7, end, step)
            lines += [f"{ENGINE}{{{its}}} 1 {START.timestamp() + time:.0f}" for time in times]
    return "\n".join([*lines, "# EOF", ""])


async def test_interval_is_that_of_the_scrapes_however_many_series_a_gpu_has(tmp_path, wait_until) -> None:
    with serving(tmp_path, history()) as address:
        async with asking(address, wait_until) as client:
            probe, end = IntervalProbe(client), START + HOUR
            found = await probe.intervals(end, 3600, await probe.exporters(end, 3600))
    assert {host: found.of(f"GPU-{host}") for host in SERIES} == {
        "plain": 30,
        "sliced": 60,
        "shared": 60,
        "often": 15,
    }
