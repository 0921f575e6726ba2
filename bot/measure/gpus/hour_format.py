"""Encode an hour's GPU use as it is stored: its pods as columns, and their sums, which are all a bill reads.

An hour of 10,000 GPUs has about 5,000 pods: as JSON objects a day would take seconds to parse, and a month
minutes. Decoding still takes milliseconds per hour, so call it in a thread. Pure.
"""

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from bot.core.plan import HOME_CLUSTER
from bot.measure.gpus.models import Hour, HourCapacity, HourUse, UseColumns
from bot.measure.gpus.overrequest import ram_peaks
from bot.measure.gpus.sums import ELASTIC, RESERVED, Totals, UsageSum
from bot.platform.config.elastic import ElasticDeployment, is_elastic
from k8s.nodes.gpu_pods import is_placeholder

VERSION = 2
DECIMALS = {"cpu_mean": 3, "ram_peak": -6}  # more digits are noise that doesn't compress
GPU_HOUR_DECIMALS = 5  # 40 ms
STORED = HourUse._fields[1:-2]  # the key has the hour and the cluster; `prices` has the price

TEAM, MODEL, KEYS = map(UsageSum._fields.index, ("team", "model", "allocated"))  # keys, then GPU-hours

Stored = Mapping[bytes, bytes]
Prices = Mapping[tuple[str, str], float | None]  # of a GPU-hour, by team and model

CAPACITY: TypeAdapter[HourCapacity] = TypeAdapter(HourCapacity)


def encode(
    uses: Iterable[HourUse],
    capacity: HourCapacity,
    elastic: Collection[ElasticDeployment] = (),
    prices: Prices = MappingProxyType({}),
) -> dict[str, bytes]:
    """Encode an hour.

    Args:
        elastic: the Deployments whose replicas have their own sums.
        prices: of a GPU-hour by team and model; older versions don't read them.
    """
    pods = UseColumns.of(uses)
    sums = Totals.of(_billed(pods, elastic)).uses
    return {
        "version": str(VERSION).encode(),
        "capacity": CAPACITY.dump_json(capacity),
        "pods": _packed(_columns(STORED, pods[1:-2])),
        "sums": _packed(_columns(UsageSum._fields[:-1], tuple(zip(*sums, strict=True))[:-1])),
        "prices": _packed([[*kind, price] for kind, price in prices.items() if price is not None]),
        "ram": _packed(ram_peaks(pods)),
    }


def read_prices(text: bytes | None) -> dict[tuple[str, str], float]:
    """Return the prices that an hour was stored with, by team and model; none if it has none."""
    rows = _unpacked(text) if text else []
    return {(team, model): price for team, model, price in rows}


def _billed(pods: UseColumns, elastic: Collection[ElasticDeployment]) -> UseColumns:
    named = zip(pods.sweep, pods.namespace, pods.pod, strict=True)
    return pods._replace(sweep=[sweep or _purpose(elastic, *pod) for sweep, *pod in named])


def _purpose(elastic: Collection[ElasticDeployment], namespace: str, pod: str) -> str:
    return RESERVED if is_placeholder(pod) else ELASTIC * is_elastic(elastic, namespace, pod)


def decode(stored: Stored, cluster: str = HOME_CLUSTER) -> Hour:
    """Return an hour with every pod; needs the fields capacity and pods."""
    capacity = CAPACITY.validate_json(stored[b"capacity"])
    columns: Any = [_values(each) for each in _unpacked(stored[b"pods"])] or [() for _ in STORED]
    number = len(columns[0])
    known, prices = dict(zip(STORED, columns, strict=True)), read_prices(stored.get(b"prices"))
    price = tuple(map(prices.get, zip(known["team"], known["model"], strict=True)))
    pods = UseColumns(hour=(capacity.hour,) * number, cluster=(cluster,) * number, price=price, **known)
    return Hour(columns=pods, capacity=capacity)


def add_sums(totals: Totals, stored: Stored) -> None:
    """Add an hour to `totals`; needs the fields capacity and sums."""
    prices = read_prices(stored.get(b"prices"))
    columns = [_values(each) for each in _unpacked(stored[b"sums"])]
    kinds = zip(columns[TEAM], columns[MODEL], strict=True) if columns else ()
    keys = zip(*columns[:KEYS], map(prices.get, kinds), strict=True)
    totals.add(zip(keys, zip(*columns[KEYS:], strict=True), strict=True))
    totals.coverage += CAPACITY.validate_json(stored[b"capacity"]).coverage


def raise_peaks(peaks: dict[str, float], stored: Stored) -> None:
    """Raise the peaks of the groups in `peaks` to those of an hour; needs the field ram."""
    found = _unpacked(stored[b"ram"])
    for group in peaks.keys() & found.keys():
        if found[group] > peaks[group]:
            peaks[group] = found[group]


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


def _values(column: Any) -> tuple[Any, ...]:
    values, indexes = column
    return tuple(values if indexes is None else map(values.__getitem__, indexes))


def _packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode())


def _unpacked(text: bytes) -> Any:
    return from_json(zlib.decompress(text), cache_strings=False)  # four times as fast as json.loads
