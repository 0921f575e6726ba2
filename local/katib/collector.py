"""The TensorFlowEvent metrics collector, and its database.

As the real one it looks once, after the training has ended, and needs a marker which says "completed".
It reads scalars as PyTorch and tensorboardX write them; the tensors of TensorFlow 2 only the real one reads.
"""

import asyncio
import contextlib
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tensorboardX.proto.event_pb2 import Event

from local.kubernetes.kinds import Object

Log = Callable[[str], None]
UNAVAILABLE = "unavailable"


class Reported(NamedTuple):
    """A value of the objective, the only metric collected here."""

    value: str
    second: int


class MetricsStore:
    """The db-manager: reported values by trial name. `on_report` is called with that name."""

    def __init__(self) -> None:
        self._logs: dict[str, list[Reported]] = {}
        self.on_report: Callable[[str], None] = lambda _trial: None

    def report(self, trial: str, logs: list[Reported]) -> None:
        self._logs.setdefault(trial, []).extend(logs)
        self.on_report(trial)

    def forget(self, trial: str) -> None:
        self._logs.pop(trial, None)

    def observation(self, trial: str, metric: str) -> Object | None:
        """Return the metric's min, max, and latest as Katib writes them; None before the first report."""
        if trial not in self._logs:
            return None
        return {"metrics": [{"name": metric, **_summary(self._logs[trial])}]}

    async def collect(
        self,
        pod: Object,
        container: Object,
        volumes: Mapping[str, Path],
        log: Log,
        siblings: Mapping[str, asyncio.Future[int]],
    ) -> int:
        """Run as a container in the kubelet's process, and return the exit code.

        `siblings` are the exit codes of the pod's containers that started before it, by name. It looks for
        the training's process once, and fails for good if that is not there yet.
        """
        args = dict(zip(container["args"][::2], container["args"][1::2], strict=True))
        inside = args["-path"]
        mount = next(one for one in container["volumeMounts"] if one["mountPath"] == inside)
        folder = volumes[mount["name"]]
        marker = f"echo completed > {PurePosixPath(inside)}"
        containers = pod["spec"]["containers"]
        main = next(one["name"] for one in containers if marker in " ".join(one.get("args", [])))
        if main not in siblings:
            log("Exception: Unable to find main pid from the process list")
            return 1
        await asyncio.wait([siblings[main]])
        if "completed" not in [path.read_text().strip() for path in folder.glob("*.pid")]:
            missing = PurePosixPath(inside) / "<pid>.pid"
            log(f"FileNotFoundError: [Errno 2] No such file or directory: '{missing}'")
            return 1
        metric = args["-m"]
        logs = await asyncio.to_thread(lambda: list(_read_events(folder, inside, metric, log)))
        if not logs:
            log(f"Objective metric {metric} is not found in training logs, {UNAVAILABLE} value is reported")
            logs = [Reported(UNAVAILABLE, 0)]
        log(f"In {args['-t']} {len(logs)} metrics will be reported.")
        self.report(args["-t"], logs)
        return 0


def _read_events(folder: Path, inside: str, metric: str, log: Log) -> Iterator[Reported]:
    """Yield values of matching tags: a tag must start with the metric's name, its directory end with it."""
    above = str(PurePosixPath(metric).parent) if "/" in metric else ""
    for path in sorted(one for one in folder.rglob("*tfevents*") if one.is_file()):
        place = PurePosixPath(inside) / path.relative_to(folder)
        log(f"{place} will be parsed.")
        for event in _records(path):
            for value in event.summary.value:
                fits = value.tag.startswith(metric.rpartition("/")[2]) and str(place.parent).endswith(above)
                if fits and value.HasField("simple_value"):
                    yield Reported(str(value.simple_value), int(event.wall_time))


def _records(path: Path) -> Iterator[Any]:
    """Yield TFRecords (length, checksum, record, checksum) up to an incomplete one."""
    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            record = file.read(struct.unpack("<Q", head[:8])[0])
            if len(file.read(4)) < 4:
                return
            yield Event.FromString(record)


def _summary(logs: list[Reported]) -> dict[str, str]:
    """Add a value. Comparisons with NaN are false, so a first NaN stays min and max, as in Katib."""
    found = dict.fromkeys(("min", "max", "latest"), UNAVAILABLE)
    last = -math.inf
    for value, second in logs:
        with contextlib.suppress(ValueError):  # text only has a latest value
            number = float(value)
            if found["min"] == UNAVAILABLE:
                found |= {"min": value, "max": value}
            found["min"] = value if number < float(found["min"]) else found["min"]
            found["max"] = value if number > float(found["max"]) else found["max"]
        if second >= last:
            last, found["latest"] = second, value
    return found
