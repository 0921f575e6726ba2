"""Hours of GPU use."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from bot.measure.gpus.hour_format import encode
from bot.measure.gpus.models import HOUR, Hour, HourCapacity, HourUse, UseColumns
from bot.measure.gpus.sums import Totals
from bot.platform.config.elastic import ElasticDeployment


def use(
    hour: datetime, pod: str, held: float, used: float = 0.0, idle: float = 0.0, **more: object
) -> HourUse:
    """Return an hour of one pod; the namespace precedes the slash."""
    namespace, _, name = pod.rpartition("/")
    known = {"namespace": namespace or "sweeps", "model": "NVIDIA H100 80GB HBM3", "observed": held} | more
    return HourUse(hour=hour, pod=name, allocated=held, used=used, idle=idle, **known)  # type: ignore[arg-type]


def hour_of(uses: Iterable[HourUse], capacity: HourCapacity) -> Hour:
    return Hour(columns=UseColumns.of(uses), capacity=capacity)


def hour(at: datetime, *uses: HourUse, capacity: float = 16.0, **more: float) -> Hour:
    given = {"unhealthy": 0.0} | more
    held = sum(each.allocated for each in uses)
    return hour_of(uses, HourCapacity(hour=at, capacity=capacity, allocated=held, **given))


def totals(hours: Iterable[Hour]) -> Totals:
    known = tuple(hours)
    uses = UseColumns.joined(each.columns for each in known)
    return Totals.of(uses, sum(each.capacity.coverage for each in known))


def stored(
    uses: Iterable[HourUse], capacity: HourCapacity, elastic: Collection[ElasticDeployment] = ()
) -> dict[bytes, bytes]:
    """Return an hour's fields as Redis returns them."""
    return {name.encode(): value for name, value in encode(uses, capacity, elastic).items()}


def lazy(begin: datetime, end: datetime) -> tuple[Hour, ...]:
    """Vision's sweep holds four GPUs and uses one, speech works on two, eight are free, one is lost."""
    return tuple(
        hour(
            at,
            use(at, "lr-1", 4, 1.0, 3.0, owner="U1ADA", team="vision", sweep="lr-brave-otter", node="n1"),
            use(at, "speech/train-0", 2, 1.8, owner="U2GRACE", team="speech", node="n2"),
            use(at, "notebook-0", 1, observed=0.5, model="NVIDIA A10"),
            capacity=15,
            unhealthy=1,
            waited=2,
            waiting=3,
            wanted=2,
            longest=5.5,
        )
        for at in (begin + n * HOUR for n in range(round((end - begin) / timedelta(hours=1))))
    )
