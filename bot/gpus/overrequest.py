"""Find sweeps and pods that request far more CPU or memory than they use. Pure.

Memory counts by its peak since the pods started, as far as hours are kept: loading data needs the most, and a
smaller request would get the pod killed there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bot.gpus.models import HourUse

GIB = 2**30
LARGE_CPU, LARGE_RAM = 4.0, 32 * GIB  # cores, bytes; smaller requests aren't reported
LITTLE_CPU, LITTLE_RAM = 0.1, 0.35  # share of the request; more use isn't reported
MIN_AGE = 1.0  # hours; a younger pod hasn't shown yet what it needs


Usage = tuple[float, float]  # requested, used


@dataclass(frozen=True, kw_only=True)
class Overrequest:
    """CPU or memory, or both; None where the request fits or is unknown."""

    group: str
    name: str  # sweep, or pod
    namespace: str
    owner: str
    team: str
    cpu: Usage | None  # cores: requested, mean used
    ram: Usage | None  # bytes: requested, peak used


def find_overrequests(uses: Iterable[HourUse]) -> tuple[Overrequest, ...]:
    """Check a day's uses, by sweep or pod."""
    groups: dict[str, list[HourUse]] = defaultdict(list)
    for use in uses:
        groups[group_of(use)].append(use)
    found = (_of(group, mine) for group, mine in groups.items())
    return tuple(sorted((one for one in found if one), key=lambda one: one.group))


def with_past_peaks(found: Iterable[Overrequest], peaks: Mapping[str, float]) -> tuple[Overrequest, ...]:
    """Leave out memory that was needed on the days before; `peaks` are in bytes, by group."""
    checked = (replace(one, ram=_over_peak(one.ram, peaks.get(one.group, 0.0))) for one in found)
    return tuple(one for one in checked if one.cpu or one.ram)


def _over_peak(ram: Usage | None, peak: float) -> Usage | None:
    return _little_ram(ram[0], max(ram[1], peak)) if ram else None


def ram_peaks(uses: Iterable[HourUse]) -> dict[str, float]:
    """Return the highest memory use of each group, in bytes; groups without metrics are absent."""
    peaks: dict[str, float] = {}
    for use in uses:
        if use.ram_peak is not None:
            group = group_of(use)
            peaks[group] = max(peaks.get(group, 0.0), use.ram_peak)
    return peaks


def group_of(use: HourUse) -> str:
    """Return what a request is set for: a sweep's trials, or a pod outside sweeps."""
    return f"{use.namespace}/{use.sweep}" if use.sweep else f"{use.namespace}//{use.pod}"


def _of(group: str, uses: list[HourUse]) -> Overrequest | None:
    cpu, ram = _cpu(uses), _ram(uses)
    if not (cpu or ram) or sum(use.allocated / use.gpus for use in uses if use.gpus) < MIN_AGE:
        return None
    last = uses[-1]
    return Overrequest(
        group=group,
        name=last.sweep or last.pod,
        namespace=last.namespace,
        owner=last.owner,
        team=last.team,
        cpu=cpu,
        ram=ram,
    )


def _cpu(uses: list[HourUse]) -> Usage | None:
    requested = total = allocated = 0.0
    for use in uses:
        if use.cpu_mean is not None:
            requested = max(requested, use.cpu_requested or 0.0)
            total += use.cpu_mean * use.allocated
            allocated += use.allocated
    mean = total / allocated if allocated else 0.0
    return (requested, mean) if requested >= LARGE_CPU and mean < LITTLE_CPU * requested else None


def _ram(uses: list[HourUse]) -> Usage | None:
    requested = peak = 0.0
    for use in uses:
        if use.ram_peak is not None:
            requested, peak = max(requested, use.ram_requested or 0.0), max(peak, use.ram_peak)
    return _little_ram(requested, peak)


def _little_ram(requested: float, peak: float) -> Usage | None:
    return (requested, peak) if requested >= LARGE_RAM and peak < LITTLE_RAM * requested else None
