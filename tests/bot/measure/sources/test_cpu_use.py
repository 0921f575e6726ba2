"""CPU and memory of trials, from a real Prometheus with what kubelets' cAdvisor exports."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from bot.measure.gpus.models import NoGpuDataError
from bot.measure.sources.cpu_use import CpuQueries, CpuUse
from tests.bot.measure.sources.prometheus_server import NEEDS_PROMETHEUS, asking, serving

START = datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0) - timedelta(days=1)
END, HALF, TWO = START + timedelta(minutes=150), timedelta(minutes=30), timedelta(hours=2)
GIB = 2**30
OURS = 'namespace="sweeps",pod="{0}",container="main",id="/{0}/{1}"'
SCRAPED = 'namespace="monitoring",pod="cadvisor-x",container="cadvisor"'
RENAMED = f'{SCRAPED},exported_namespace="sweeps",exported_pod="{{}}",exported_container="main"'

pytestmark = [pytest.mark.slow, NEEDS_PROMETHEUS]


def cores(minute: int, steady: float, until: int = 0) -> float:
    """Return CPU seconds: 4 cores until a minute, `steady` from then on."""
    return 60 * (4 * min(minute, until) + steady * max(0, minute - until))


def history() -> str:
    """A sample each minute; by series, the value at a minute, or None."""
    cpu = {
        OURS.format("steady", 1) + ',cpu="total"': lambda m: cores(m, 0.25),
        OURS.format("steady", 1) + ',cpu="total",job="again"': lambda m: cores(m, 0.25),  # scraped twice
        OURS.format("steady", 1).replace("main", "metrics-logger-and-collector"): lambda m: cores(m, 3),
        OURS.format("steady", 1).replace("main", "metrics-reader"): lambda m: cores(m, 3),
        OURS.format("steady", 1).replace('"main"', '""'): lambda m: cores(m, 5),  # the pod's cgroup
        OURS.format("split", 1) + ',cpu="cpu00"': lambda m: cores(m, 1),
        OURS.format("split", 1) + ',cpu="cpu01"': lambda m: cores(m, 0.5),
        RENAMED.format("renamed") + ',cpu="total"': lambda m: cores(m, 2),
        RENAMED.format("renamed").replace("main", "POD"): lambda m: cores(m, 3),
        RENAMED.format("renamed").replace(',exported_container="main"', ""): lambda m: cores(m, 5),
        OURS.format("young", 1): lambda m: cores(m - 130, 1) if m > 130 else None,
        OURS.format("gap", 1): lambda m: cores(m, 1) if m < 10 or m > 140 else None,  # Prometheus was down
        OURS.format("bursty", 1): lambda m: cores(m, 0, until=60),
        OURS.format("other", 1).replace("sweeps", "else"): lambda m: cores(m, 1),
    }
    ram = {
        OURS.format("steady", 1): lambda m: (2 if m > 60 else 30 if m == 60 else 1) * GIB,
        RENAMED.format("renamed"): lambda _: 3 * GIB,
    }
    lines = []
    for name, series in (
        ("container_cpu_usage_seconds_total", cpu),
        ("container_memory_working_set_bytes", ram),
    ):
        lines.append(f"# TYPE {name} unknown")
        for labels, value in series.items():
            lines += [
                f"{name}{{{labels}}} {value(minute)} {START.timestamp() + 60 * minute:.0f}"
                for minute in range(151)
                if value(minute) is not None
            ]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("prometheus"), history()) as address:
        yield address


async def test_use_is_that_of_the_training_container_however_it_was_scraped(served, wait_until):
    async with asking(served, wait_until) as client:
        queries = CpuQueries(client, lambda: END)
        found = {pod: use for (_, pod), use in (await queries.use(HALF, {"sweeps"})).items()}
        rounded = {pod: use.cores and round(use.cores, 3) for pod, use in found.items()}
        assert rounded == {"steady": 0.25, "split": 1.5, "renamed": 2.0, "bursty": 0.0}, "no sample, no use"
        assert {pod: use.ram for pod, use in found.items() if use.ram} == {
            "steady": 2 * GIB,
            "renamed": 3 * GIB,
        }
        found = await queries.use(TWO, {"sweeps", "none.such"})
        assert found["sweeps", "steady"] == CpuUse(cores=0.25, ram=30 * GIB)
        assert found["sweeps", "bursty"].cores == pytest.approx(1.0)


async def test_bursts_and_peaks(served, wait_until):
    async with asking(served, wait_until) as client:
        queries = CpuQueries(client, lambda: END)
        bursts = await queries.bursts(TWO, {"sweeps"})
        assert bursts["sweeps", "steady"] == pytest.approx(0.25)
        assert bursts["sweeps", "bursty"] > 3.5
        peaks = await queries.peaks(timedelta(hours=3), {"sweeps"}, [("sweeps", "steady")])
        assert peaks == {("sweeps", "steady"): 30 * GIB}
        many = [("sweeps", f"p{number}") for number in range(600)]
        assert len(await queries.peaks(timedelta(hours=3), {"sweeps"}, many)) == 2


async def test_missing_metrics_are_an_error(served, wait_until):
    async with asking(served, wait_until) as client:
        with pytest.raises(NoGpuDataError, match="no container_cpu_usage_seconds_total of pods in elsewhere"):
            await CpuQueries(client, lambda: END).use(HALF, {"elsewhere"})
