"""Encode an hour's GPU use as it is stored: its pods as columns, and their sums, which are all a bill reads.

An hour of 10,000 GPUs has about 5,000 pods: as JSON objects a day would take seconds to parse, and a month
minutes. Decoding still takes milliseconds per hour, so call it in a thread. Pure.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from bot.gpus.models import Hour, HourCapacity, HourUse
from bot.gpus.overrequest import ram_peaks
from bot.gpus.sums import Totals, UsageSum

VERSION = 2  # version 1 has no field `version`, and every pod as a JSON object in `uses`
DECIMALS = {"cpu_mean": 3, "ram_peak": -6}  # more digits are noise that doesn't compress
GPU_HOUR_DECIMALS = 5  # 40 ms

Stored = Mapping[bytes, bytes]

CAPACITY: TypeAdapter[HourCapacity] = TypeAdapter(HourCapacity)

_use = partial(tuple.__new__, HourUse)  # HourUse._make without its check, in half the time


def encode(uses: Iterable[HourUse], capacity: HourCapacity) -> dict[str, bytes]:
    pods = tuple(uses)
    return {
        "version": str(VERSION).encode(),
        "capacity": CAPACITY.dump_json(capacity),
        "pods": _packed(_columns(HourUse._fields[1:], [use[1:] for use in pods])),
        "sums": _packed(_columns(UsageSum._fields, Totals.of(pods).uses)),
        "ram": _packed(ram_peaks(pods)),
    }


def decode(stored: Stored) -> Hour:
    """Return an hour with every pod; needs the fields version, capacity, and pods, or uses of version 1."""
    capacity = CAPACITY.validate_json(stored[b"capacity"])
    if b"version" not in stored:
        return Hour(uses=_first_version(stored[b"uses"], capacity.hour), capacity=capacity)
    columns = _unpacked(stored[b"pods"])
    rows = _rows([[[capacity.hour], [0] * _length(columns)], *columns])
    return Hour(uses=tuple(map(_use, rows)), capacity=capacity)


def add_sums(totals: Totals, stored: Stored) -> None:
    """Add an hour to `totals`; needs the fields capacity and sums, or uses of version 1."""
    if b"sums" in stored:
        totals.add(_rows(_unpacked(stored[b"sums"])))
    else:
        totals.add_pods(decode(stored).uses)
    totals.coverage += CAPACITY.validate_json(stored[b"capacity"]).coverage


def raise_peaks(peaks: dict[str, float], stored: Stored) -> None:
    """Raise the peaks of the groups in `peaks` to those of an hour; needs ram, or capacity and uses."""
    found = _unpacked(stored[b"ram"]) if b"ram" in stored else ram_peaks(decode(stored).uses)
    for group in peaks.keys() & found.keys():
        if found[group] > peaks[group]:
            peaks[group] = found[group]


def _first_version(text: bytes, hour: datetime) -> tuple[HourUse, ...]:
    rows: list[dict[str, Any]] = _unpacked(text)
    return tuple(HourUse(**{**row, "hour": hour}) for row in rows)


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Any]:
    digits = (DECIMALS.get(name, GPU_HOUR_DECIMALS) for name in names)
    return [_column(values, number) for values, number in zip(zip(*rows, strict=True), digits, strict=False)]


def _column(values: Sequence[Any], digits: int) -> list[Any]:
    """Return the values, or if many repeat, the distinct values and each row's index among them."""
    rounded = [round(each, digits) if isinstance(each, float) else each for each in values]
    indexes = {value: index for index, value in enumerate(dict.fromkeys(rounded))}
    if len(indexes) > len(rounded) / 2:
        return [rounded, None]
    return [list(indexes), [indexes[value] for value in rounded]]


def _rows(columns: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*map(_values, columns), strict=True)


def _values(column: Any) -> list[Any]:
    values, indexes = column
    return values if indexes is None else list(map(values.__getitem__, indexes))


def _length(columns: Sequence[Any]) -> int:
    return len(columns[0][1] or columns[0][0]) if columns else 0


def _packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode())


def _unpacked(text: bytes) -> Any:
    return from_json(zlib.decompress(text))  # three times as fast as json.loads
