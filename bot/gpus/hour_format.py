"""Encode an hour's GPU use as it is stored: its pods as columns, and their sums, which are all a bill reads.

An hour of 10,000 GPUs has about 5,000 pods: as JSON objects a day would take seconds to parse, and a month
minutes. Decoding still takes milliseconds per hour, so call it in a thread. Pure.
"""

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from bot.config.elastic import ElasticDeployment, is_elastic
from bot.core.plan import HOME_CLUSTER
from bot.gpus.models import Hour, HourCapacity, HourUse, UseColumns
from bot.gpus.overrequest import ram_peaks
from bot.gpus.sums import ELASTIC, Totals, UsageSum

VERSION = 2  # version 1 has no field `version`, and every pod as a JSON object in `uses`
DECIMALS = {"cpu_mean": 3, "ram_peak": -6}  # more digits are noise that doesn't compress
GPU_HOUR_DECIMALS = 5  # 40 ms
STORED = HourUse._fields[1:-1]  # the key has the hour and the cluster

Stored = Mapping[bytes, bytes]

CAPACITY: TypeAdapter[HourCapacity] = TypeAdapter(HourCapacity)


def encode(
    uses: Iterable[HourUse], capacity: HourCapacity, elastic: Collection[ElasticDeployment] = ()
) -> dict[str, bytes]:
    """`elastic`: the Deployments whose replicas have their own sums."""
    pods = UseColumns.of(uses)
    sums = Totals.of(_billed(pods, elastic)).uses
    return {
        "version": str(VERSION).encode(),
        "capacity": CAPACITY.dump_json(capacity),
        "pods": _packed(_columns(STORED, pods[1:-1])),
        "sums": _packed(_columns(UsageSum._fields, tuple(zip(*sums, strict=True)))),
        "ram": _packed(ram_peaks(pods)),
    }


def _billed(pods: UseColumns, elastic: Collection[ElasticDeployment]) -> UseColumns:
    named = zip(pods.sweep, pods.namespace, pods.pod, strict=True)
    return pods._replace(sweep=[sweep or ELASTIC * is_elastic(elastic, *pod) for sweep, *pod in named])


def decode(stored: Stored, cluster: str = HOME_CLUSTER) -> Hour:
    """Return an hour with every pod; needs the fields version, capacity, and pods, or uses of version 1."""
    capacity = CAPACITY.validate_json(stored[b"capacity"])
    if b"version" not in stored:
        return Hour.of(_first_version(stored[b"uses"], capacity.hour, cluster), capacity)
    columns: Any = [_values(each) for each in _unpacked(stored[b"pods"])] or [[] for _ in STORED]
    number = len(columns[0])
    known = dict(zip(STORED, columns, strict=True))
    pods = UseColumns(hour=[capacity.hour] * number, cluster=[cluster] * number, **known)
    return Hour(columns=pods, capacity=capacity)


def add_sums(totals: Totals, stored: Stored) -> None:
    """Add an hour to `totals`; needs the fields capacity and sums, or uses of version 1."""
    if b"sums" in stored:
        totals.add(zip(*map(_values, _unpacked(stored[b"sums"])), strict=True))
    else:
        totals.add_pods(decode(stored).columns)
    totals.coverage += CAPACITY.validate_json(stored[b"capacity"]).coverage


def raise_peaks(peaks: dict[str, float], stored: Stored) -> None:
    """Raise the peaks of the groups in `peaks` to those of an hour; needs ram, or capacity and uses."""
    found = _unpacked(stored[b"ram"]) if b"ram" in stored else ram_peaks(decode(stored).columns)
    for group in peaks.keys() & found.keys():
        if found[group] > peaks[group]:
            peaks[group] = found[group]


def _first_version(text: bytes, hour: datetime, cluster: str) -> Iterator[HourUse]:
    rows: list[dict[str, Any]] = _unpacked(text)
    return (HourUse(**{**row, "hour": hour, "cluster": cluster}) for row in rows)


def _columns(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the columns to store: none if there are no rows."""
    digits = (DECIMALS.get(name, GPU_HOUR_DECIMALS) for name in names)
    given = zip(columns, digits, strict=False)
    return [_column(values, number) for values, number in given if values]


def _column(values: Sequence[Any], digits: int) -> list[Any]:
    """Return the values, or if many repeat, the distinct values and each row's index among them."""
    rounded = [round(each, digits) if isinstance(each, float) else each for each in values]
    indexes = {value: index for index, value in enumerate(dict.fromkeys(rounded))}
    if len(indexes) > len(rounded) / 2:
        return [rounded, None]
    return [list(indexes), [indexes[value] for value in rounded]]


def _values(column: Any) -> list[Any]:
    values, indexes = column
    return values if indexes is None else list(map(values.__getitem__, indexes))


def _packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode())


def _unpacked(text: bytes) -> Any:
    return from_json(zlib.decompress(text))  # three times as fast as json.loads
