"""Find sweeps and pods that request far more CPU or memory than they use. Pure.

Memory counts by its peak since the pods started, as far as hours are kept: loading data needs the most, and a
smaller request would get the pod killed there.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from bot.gpus.models import HourUse

GIB = 2**30
LARGE_CPU, LARGE_RAM = 4.0, 32 * GIB  # cores, bytes; smaller requests aren't reported
LITTLE_CPU, LITTLE_RAM = 0.1, 0.35  # share of the request; more use isn't reported
MIN_AGE = 1.0  # hours; a younger pod hasn't shown yet what it needs

Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Overrequest:
    """CPU or memory, or both; None where the request fits or is unknown."""

    name: str  # sweep, or pod
    namespace: str
    owner: str
    team: str
    cpu: tuple[float, float] | None  # cores: requested, mean used
    ram: tuple[float, float] | None  # bytes: requested, peak used


def find_overrequests(uses: Iterable[HourUse], past: Iterable[HourUse]) -> tuple[Overrequest, ...]:
    """Check a day's uses; `past` are those of the days before, in which a pod may have started."""
    peaks: dict[Key, float] = defaultdict(float)
    for use in past:
        peaks[_key(use)] = max(peaks[_key(use)], use.ram_peak or 0.0)
    groups: dict[Key, list[HourUse]] = defaultdict(list)
    for use in uses:
        groups[_key(use)].append(use)
    found = [_of(mine, peaks[key]) for key, mine in sorted(groups.items())]
    return tuple(one for one in found if one.cpu or one.ram)


def _key(use: HourUse) -> Key:
    return use.namespace, use.sweep or f"/{use.pod}"


def _of(uses: list[HourUse], before: float) -> Overrequest:
    last = uses[-1]
    old = sum(use.allocated / use.gpus for use in uses if use.gpus) >= MIN_AGE
    return Overrequest(
        name=last.sweep or last.pod,
        namespace=last.namespace,
        owner=last.owner,
        team=last.team,
        cpu=_cpu(uses) if old else None,
        ram=_ram(uses, before) if old else None,
    )


def _cpu(uses: list[HourUse]) -> tuple[float, float] | None:
    known = [(use.cpu_mean, use) for use in uses if use.cpu_mean is not None]
    held = sum(use.allocated for _, use in known)
    requested = max((use.cpu_requested or 0.0 for _, use in known), default=0.0)
    mean = sum(mean * use.allocated for mean, use in known) / held if held else 0.0
    return (requested, mean) if requested >= LARGE_CPU and mean < LITTLE_CPU * requested else None


def _ram(uses: list[HourUse], before: float) -> tuple[float, float] | None:
    known = [(use.ram_requested or 0.0, use.ram_peak) for use in uses if use.ram_peak is not None]
    requested = max((requested for requested, _ in known), default=0.0)
    peak = max([before, *(peak for _, peak in known)])
    return (requested, peak) if requested >= LARGE_RAM and peak < LITTLE_RAM * requested else None
