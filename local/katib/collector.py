"""The TensorFlowEvent metrics collector, and the database it reports to.

As the real one it looks once, after the training has ended, and needs a marker which says "completed".
"""

import asyncio
import contextlib
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from tensorboardX.proto.event_pb2 import Event

from local.kubernetes.kinds import Object

Log = Callable[[str], None]
UNAVAILABLE = "unavailable"
DTYPES = {1: (np.float32, "float_val"), 2: (np.float64, "double_val"), 3: (np.int32, "int_val")}


class Reported(NamedTuple):
    metric: str
    value: str
    second: int


class MetricsStore:
    """The db-manager: what was reported, by the trial's name alone. `on_report` hears that name."""

    def __init__(self) -> None:
        self._logs: dict[str, list[Reported]] = {}
        self.on_report: Callable[[str], None] = lambda _trial: None

    def report(self, trial: str, logs: list[Reported]) -> None:
        self._logs.setdefault(trial, []).extend(logs)
        self.on_report(trial)

    def forget(self, trial: str) -> None:
        self._logs.pop(trial, None)

    def observation(self, trial: str, metrics: list[str]) -> Object | None:
        """min, max and latest of each metric as Katib writes them; None before anything was reported."""
        if trial not in self._logs:
            return None
        return {"metrics": [_summary(metric, self._logs[trial]) for metric in metrics]}


class Collector:
    """A container which the kubelet runs in-process."""

    def __init__(self, metrics: MetricsStore) -> None:
        self._metrics = metrics

    async def collect(
        self,
        pod: Object,
        container: Object,
        volumes: Mapping[str, Path],
        log: Log,
        siblings: Mapping[str, asyncio.Future[int]],
    ) -> int:
        """The container's exit code. `siblings` are the exit codes of the pod's other containers, by name."""
        args = dict(zip(container["args"][::2], container["args"][1::2], strict=True))
        inside = args["-path"]
        mount = next(one for one in container["volumeMounts"] if one["mountPath"] == inside)
        folder = volumes[mount["name"]]
        marker = f"echo completed > {PurePosixPath(inside)}"
        others = [one for one in pod["spec"]["containers"] if one["name"] in siblings]
        main = next(one["name"] for one in others if marker in " ".join(one.get("args", [])))
        await asyncio.wait([siblings[main]])
        if "completed" not in [path.read_text().strip() for path in folder.glob("*.pid")]:
            missing = PurePosixPath(inside) / "<pid>.pid"
            log(f"FileNotFoundError: [Errno 2] No such file or directory: '{missing}'")
            return 1
        names = args["-m"].split(";")
        logs = await asyncio.to_thread(lambda: list(read_events(folder, inside, names, log)))
        if names[0] not in [one.metric for one in logs]:
            log(f"Objective metric {names[0]} is not found in training logs, {UNAVAILABLE} value is reported")
            logs = [Reported(names[0], UNAVAILABLE, 0)]
        log(f"In {args['-t']} {len(logs)} metrics will be reported.")
        self._metrics.report(args["-t"], logs)
        return 0


def read_events(folder: Path, inside: str, metrics: list[str], log: Log) -> Iterator[Reported]:
    """Every value under a matching tag. A tag need only begin like the metric, its folder end like it."""
    for path in sorted(one for one in folder.rglob("*tfevents*") if one.is_file()):
        place = PurePosixPath(inside) / path.relative_to(folder)
        log(f"{place} will be parsed.")
        for event in _records(path):
            for value in event.summary.value:
                for metric in metrics:
                    above = str(PurePosixPath(metric).parent) if "/" in metric else ""
                    fits = value.tag.startswith(metric.split("/")[-1]) and str(place.parent).endswith(above)
                    if fits and (text := _text(value)) is not None:
                        yield Reported(metric, text, int(event.wall_time))


def _records(path: Path) -> Iterator[Any]:
    """TFRecord framing: length, its checksum, the record, its checksum. A cut-off end is the end."""
    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            record = file.read(struct.unpack("<Q", head[:8])[0])
            if len(file.read(4)) < 4:
                return
            yield Event.FromString(record)


def _text(value: Any) -> str | None:
    """As Python prints it: an old-style scalar widened to a double, a tensor in its own precision."""
    if value.HasField("simple_value"):
        return str(value.simple_value)
    if not value.HasField("tensor") or value.tensor.dtype not in DTYPES:
        return None
    dtype, field = DTYPES[value.tensor.dtype]
    content = np.frombuffer(value.tensor.tensor_content, dtype)
    return str(content[0] if content.size else dtype(getattr(value.tensor, field)[0]))


def _summary(metric: str, logs: list[Reported]) -> Object:
    """Comparisons with NaN are false, so a first NaN stays the minimum and maximum, as in Katib."""
    found = {"name": metric, "min": UNAVAILABLE, "max": UNAVAILABLE, "latest": UNAVAILABLE}
    last = -math.inf
    for _, value, second in (one for one in logs if one.metric == metric):
        with contextlib.suppress(ValueError):  # a text has only a latest value
            number = float(value)
            if found["min"] == UNAVAILABLE:
                found |= {"min": value, "max": value}
            found["min"] = value if number < float(found["min"]) else found["min"]
            found["max"] = value if number > float(found["max"]) else found["max"]
        if second >= last:
            last, found["latest"] = second, value
    return found
