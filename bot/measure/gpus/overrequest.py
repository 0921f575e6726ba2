"""Find sweeps and pods that request far more CPU or memory than they use. Pure.

Memory counts by its peak since the pods started, as far as hours are kept: loading data needs the most, and a
smaller request would get the pod killed there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bot.measure.gpus.models import UseColumns

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


@dataclass(slots=True)
class _Need:
    """What the pods of a group requested and used."""

    last: int  # row of its last use
    cpu_requested: float = 0.0  # highest, in cores
    cpu_hours: float = 0.0  # used, weighted by GPUs
    gpu_hours: float = 0.0  # with known CPU use
    ram_requested: float = 0.0  # highest, in bytes
    ram_peak: float = 0.0
    age: float = 0.0  # pod-hours


def find_overrequests(uses: UseColumns) -> tuple[Overrequest, ...]:
    """Check a day's uses, by sweep or pod."""
    groups = groups_of(uses)
    last = {group: row for row, group in enumerate(groups)}
    needs = {group: _Need(row) for group, row in last.items()}
    kinds = uses.allocated, uses.gpus, uses.cpu_requested, uses.cpu_mean, uses.ram_requested, uses.ram_peak
    for group, allocated, gpus, cpu, cpu_mean, ram, ram_peak in zip(groups, *kinds, strict=True):
        need = needs[group]
        if gpus:
            need.age += allocated / gpus
        if cpu_mean is not None:
            need.cpu_hours += cpu_mean * allocated
            need.gpu_hours += allocated
            if cpu is not None and cpu > need.cpu_requested:
                need.cpu_requested = cpu
        if ram_peak is not None:
            if ram is not None and ram > need.ram_requested:
                need.ram_requested = ram
            if ram_peak > need.ram_peak:
                need.ram_peak = ram_peak
    found = (_of(group, need, uses) for group, need in needs.items())
    return tuple(sorted((one for one in found if one), key=lambda one: one.group))


def with_past_peaks(found: Iterable[Overrequest], peaks: Mapping[str, float]) -> tuple[Overrequest, ...]:
    """Leave out memory that was needed on the days before; `peaks` are in bytes, by group."""
    checked = (replace(one, ram=_over_peak(one.ram, peaks.get(one.group, 0.0))) for one in found)
    return tuple(one for one in checked if one.cpu or one.ram)


def _over_peak(ram: Usage | None, peak: float) -> Usage | None:
    return _little_ram(ram[0], max(ram[1], peak)) if ram else None


def ram_peaks(uses: UseColumns) -> dict[str, float]:
    """Return the highest memory use of each group, in bytes; groups without metrics are absent."""
    peaks: dict[str, float] = {}
    for group, peak in zip(groups_of(uses), uses.ram_peak, strict=True):
        if peak is not None and peak > peaks.get(group, -1.0):
            peaks[group] = peak
    return peaks


def groups_of(uses: UseColumns) -> list[str]:
    """Return what each pod's request is set for: a sweep's trials, or a pod outside sweeps."""
    return [
        f"{namespace}/{sweep}" if sweep else f"{namespace}//{pod}"
        for namespace, sweep, pod in zip(uses.namespace, uses.sweep, uses.pod, strict=True)
    ]


def _of(group: str, need: _Need, uses: UseColumns) -> Overrequest | None:
    cpu, ram = _little_cpu(need), _little_ram(need.ram_requested, need.ram_peak)
    if not (cpu or ram) or need.age < MIN_AGE:
        return None
    last = need.last
    return Overrequest(
        group=group,
        name=uses.sweep[last] or uses.pod[last],
        namespace=uses.namespace[last],
        owner=uses.owner[last],
        team=uses.team[last],
        cpu=cpu,
        ram=ram,
    )


def _little_cpu(need: _Need) -> Usage | None:
    requested = need.cpu_requested
    mean = need.cpu_hours / need.gpu_hours if need.gpu_hours else 0.0
    return (requested, mean) if requested >= LARGE_CPU and mean < LITTLE_CPU * requested else None


def _little_ram(requested: float, peak: float) -> Usage | None:
    return (requested, peak) if requested >= LARGE_RAM and peak < LITTLE_RAM * requested else None
