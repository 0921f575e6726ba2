"""Find sweeps and pods that request far more CPU or memory than they use. Pure.

Memory counts by its peak since the pods started, as far as hours are kept: loading data needs the most, and a
smaller request would get the pod killed there.
"""

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


@dataclass(kw_only=True, slots=True)
class _Need:
    """What the pods of a group requested and used."""

    last: HourUse
    cpu_requested: float = 0.0  # highest, in cores
    cpu_hours: float = 0.0  # used, weighted by GPUs
    gpu_hours: float = 0.0  # with known CPU use
    ram_requested: float = 0.0  # highest, in bytes
    ram_peak: float = 0.0
    age: float = 0.0  # pod-hours

    def add(self, use: HourUse) -> None:
        """A day can have a hundred thousand uses, so this compares without function calls."""
        self.last, allocated = use, use.allocated
        if use.cpu_mean is not None:
            self.cpu_hours += use.cpu_mean * allocated
            self.gpu_hours += allocated
            if (requested := use.cpu_requested or 0.0) > self.cpu_requested:
                self.cpu_requested = requested
        if (peak := use.ram_peak) is not None:
            if (requested := use.ram_requested or 0.0) > self.ram_requested:
                self.ram_requested = requested
            if peak > self.ram_peak:
                self.ram_peak = peak
        if use.gpus:
            self.age += allocated / use.gpus


def find_overrequests(uses: Iterable[HourUse]) -> tuple[Overrequest, ...]:
    """Check a day's uses, by sweep or pod."""
    needs: dict[tuple[str, ...], _Need] = {}
    for use in uses:
        key = (use.namespace, use.sweep) if use.sweep else (use.namespace, "", use.pod)
        if (need := needs.get(key)) is None:
            needs[key] = need = _Need(last=use)
        need.add(use)
    found = map(_of, needs.values())
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


def _of(need: _Need) -> Overrequest | None:
    cpu, ram = _little_cpu(need), _little_ram(need.ram_requested, need.ram_peak)
    if not (cpu or ram) or need.age < MIN_AGE:
        return None
    last = need.last
    return Overrequest(
        group=group_of(last),
        name=last.sweep or last.pod,
        namespace=last.namespace,
        owner=last.owner,
        team=last.team,
        cpu=cpu,
        ram=ram,
    )


def _little_cpu(need: _Need) -> Usage | None:
    requested = need.cpu_requested
    mean = need.cpu_hours / need.gpu_hours if need.gpu_hours else 0.0
    return (requested, mean) if requested >= LARGE_CPU and mean < LITTLE_CPU * requested else None


def _little_ram(requested: float, peak: float) -> Usage | None:
    return (requested, peak) if requested >= LARGE_RAM and peak < LITTLE_RAM * requested else None
