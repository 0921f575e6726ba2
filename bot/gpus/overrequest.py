"""Who asks for far more CPU or RAM than they use: of a day's hours, by sweep or by pod. Pure.

RAM counts by its peak in the pods' lives, as far as hours are kept: data that is loaded at the start needs
the most, and who asked for less of it would be killed there.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from bot.gpus.models import HourUse

GIB = 2**30
LARGE_CPU, LARGE_RAM = 4.0, 32 * GIB  # requests below which nobody is told
LITTLE_CPU, LITTLE_RAM = 0.1, 0.35  # of the request
YOUNG = 1.0  # hours; before, nothing has shown yet what it needs

Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Overasked:
    """By one of the two, or both; None where the request fits, or is not known."""

    name: str  # sweep, or pod
    namespace: str
    owner: str
    team: str
    cpu: tuple[float, float] | None  # cores requested, and used on average
    ram: tuple[float, float] | None  # bytes requested, and used at most


def overasked(uses: Iterable[HourUse], past: Iterable[HourUse]) -> tuple[Overasked, ...]:
    """Of the day's uses; `past` are those of the days before, in which a pod may have begun."""
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


def _of(uses: list[HourUse], before: float) -> Overasked:
    last = uses[-1]
    old = sum(use.allocated / use.gpus for use in uses if use.gpus) >= YOUNG
    return Overasked(
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
    asked = max((use.cpu_requested or 0.0 for _, use in known), default=0.0)
    mean = sum(mean * use.allocated for mean, use in known) / held if held else 0.0
    return (asked, mean) if asked >= LARGE_CPU and mean < LITTLE_CPU * asked else None


def _ram(uses: list[HourUse], before: float) -> tuple[float, float] | None:
    known = [(use.ram_requested or 0.0, use.ram_peak) for use in uses if use.ram_peak is not None]
    asked = max((asked for asked, _ in known), default=0.0)
    peak = max([before, *(peak for _, peak in known)])
    return (asked, peak) if asked >= LARGE_RAM and peak < LITTLE_RAM * asked else None
