"""The figures of the reference day, whichever source measured it."""

from collections.abc import Iterable
from datetime import datetime

import pytest

from bot.measure.gpus.hour_format import decode
from bot.measure.gpus.models import HourCapacity, HourUse
from bot.measure.gpus.sums import Totals
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.config.teams import Price
from bot.watch.digests.figures import figures
from bot.watch.idle.detector import Kind
from tests.bot.measure.gpus.factories import stored
from tests.bot.measure.sources.reference_day import cluster

# By hour of the day: pods to warn about, and pods without data.
WARNED: dict[float, dict[str, Kind]] = {
    3.1: {},
    3.7: {"b/gap": Kind.UNKNOWN, "b/bursts": Kind.UNKNOWN},
    5.2: {"b/gap": Kind.MAYBE_LOW, "b/bursts": Kind.MAYBE_LOW},
    6.45: {},
    6.6: {"a/lazy": Kind.UNUSED},
    12.1: {"a/lazy": Kind.UNUSED, "c/slices": Kind.PARTIAL},
    14.1: {"a/lazy": Kind.UNUSED, "c/slices": Kind.PARTIAL},
    18.2: {"c/slices": Kind.PARTIAL},
    19.95: {"c/slices": Kind.UNKNOWN},
    20.5: {"a/half": Kind.UNKNOWN},
    21.0: {"a/half": Kind.PARTIAL},
    23.95: {"a/half": Kind.PARTIAL, "c/pulling": Kind.UNKNOWN},
}

PRICES = (Price(model="NVIDIA H100", hourly=2.5), Price(model="NVIDIA A100", hourly=1.5))


def assert_hours(hours: Iterable[tuple[tuple[HourUse, ...], HourCapacity]]) -> None:
    """The requests and use of pods, idle GPUs, and the queue."""
    known = list(hours)
    uses = [use for each, _ in known for use in each]
    unused: dict[str, set[tuple[int, int]]] = {}
    for use in uses:
        if use.unused:
            unused.setdefault(f"{use.namespace}/{use.pod}", set()).add((use.gpus, use.unused))
    assert unused == cluster.UNUSED
    assert {(use.cpu_requested, use.ram_requested) for use in uses} == {(4, 2**35)}
    ran = [use for use in uses if use.pod != "pulling"]
    assert [use.cpu_mean for use in ran] == [pytest.approx(1, rel=0.05)] * len(ran)
    late, early = ({use.ram_peak for use in ran if (use.hour.hour == 23) is last} for last in (True, False))
    assert (late, early) == ({4 * 2**30, 12 * 2**30}, {4 * 2**30})
    assert {(use.cpu_mean, use.ram_peak) for use in uses if use.pod == "pulling"} == {(None, None)}
    given = [capacity for _, capacity in known]
    assert max(each.waiting for each in given) == cluster.PENDING_PODS
    assert max(each.wanted for each in given) == cluster.PENDING
    assert max(each.longest for each in given) == pytest.approx(cluster.LONGEST, rel=0.01)


def assert_digest(start: datetime, hours: Iterable[tuple[tuple[HourUse, ...], HourCapacity]]) -> None:
    """Every figure within 1%, after the hours were stored."""
    schedule, read = DigestSchedule(channel="C1"), [decode(stored(*hour)) for hour in hours]
    found = figures(schedule, start.date(), read, Totals(), PRICES)
    allocated, observed, used, idle = (sum(exact[n] for exact in cluster.EXACT.values()) for n in range(4))
    total = found.total
    exact = {
        "capacity": (found.capacity, cluster.CAPACITY),
        "allocated": (total.allocated, allocated),
        "used": (total.used, used),
        "idle": (total.idle, idle),
        "unknown": (total.unknown, allocated - observed),
        "free": (found.free, cluster.CAPACITY - allocated - cluster.CLOSED),
        "unhealthy": (found.unhealthy, cluster.LOST + cluster.CLOSED),
        "waited": (found.waited, cluster.WAITED),
        "cost of idle": (total.wasted, 2.5 * (48 + 11.5 * 3 / 7) + 1.5 * 4),
        "coverage": (found.coverage, 1),
    }
    assert {name: each for name, (each, _) in exact.items()} == {
        name: pytest.approx(true, rel=0.01) for name, (_, true) in exact.items()
    }
    assert [(one.name, one.gpus) for one in found.most_idle] == [
        ("a/lazy", 4),
        ("c/slices", 2),
        ("lr-brave-otter" if found.most_idle[2].sweep else "a/half", 2),
    ]
