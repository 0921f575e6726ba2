"""An hour's figures from query results."""

from datetime import UTC, datetime

from bot.measure.gpus.pod_owners import Ownership
from bot.measure.sources.hour_queries import GpuHours
from bot.measure.sources.prometheus import Row
from bot.measure.sources.prometheus_hour import HourResults, assemble_hour

START = datetime(2026, 11, 20, 8, tzinfo=UTC)
POD = ("sweeps", "lr-1")


def rows(*values: float) -> list[Row]:
    """One row for each of a pod's GPUs."""
    labels = {"namespace": POD[0], "pod": POD[1], "node": "n1", "modelName": "NVIDIA H100"}
    return [Row(labels | {"UUID": f"GPU-{number}"}, value) for number, value in enumerate(values)]


def test_hour_adds_up_gpus_and_never_exceeds_what_was_allocated() -> None:
    cluster = {"capacity": 8, "lost": 1, "closed": 2, "coverage": 1.2, "waited": 3.5}
    results = HourResults(
        allocated=rows(2),
        gpus=GpuHours(
            observed=rows(1, 1.5),
            used=rows(0.9, 0),
            idle_early=rows(0.0, 0.5)[1:],
            idle_late=rows(0.0, 0.5)[1:],
        ),
        cpu_requested={POD: 8},
        cpu_mean={},
        ram_requested={POD: 1024},
        ram_peak={POD: 512},
        cluster=cluster | {"waiting": 2, "wanted": 4, "longest": 5.5},
        offered={},
        owners={POD: Ownership(owner="U1ADA", sweep="lr-brave-otter")},
    )
    [use], capacity = assemble_hour(START, results)
    assert (use.allocated, use.observed, use.used, use.idle, use.gpus, use.unused) == (2, 2, 0.9, 1, 2, 1)
    assert (use.owner, use.sweep, use.node, use.model) == ("U1ADA", "lr-brave-otter", "n1", "NVIDIA H100")
    assert (use.cpu_requested, use.cpu_mean, use.ram_requested, use.ram_peak) == (8, None, 1024, 512)
    assert (capacity.capacity, capacity.unhealthy, capacity.closed, capacity.coverage) == (8, 3, 2, 1.0)
    assert (capacity.allocated, capacity.observed, capacity.waited) == (2, 2, 3.5)
    assert (capacity.waiting, capacity.wanted, capacity.longest) == (2, 4, 5.5)
