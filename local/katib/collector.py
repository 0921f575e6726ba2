"""Run Katib's metrics collectors, as containers in the kubelet's process.

Like the real ones, they read once, after the training has ended, and need the marker "completed".
Scalars are read as PyTorch and tensorboardX write them; TensorFlow 2's tensors aren't supported.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from tensorboardX.proto.event_pb2 import Event

from local.katib.early_stopping import watch
from local.katib.line_collector import DEFAULT_FILTER, ParseError, read_lines
from local.katib.metrics import UNAVAILABLE, MetricsStore, Reported
from local.kubernetes.apiserver.kinds import Object

Log = Callable[[str], None]
Siblings = Mapping[str, asyncio.Future[int]]


class Collectors:
    """`start_seconds`: until one looks for the training; 12 s with TensorFlow and Katib's resources."""

    def __init__(self, metrics: MetricsStore) -> None:
        self._metrics, self.start_seconds = metrics, 0.0

    async def events(
        self, pod: Object, container: Object, volumes: Mapping[str, Path], log: Log, siblings: Siblings
    ) -> int:
        """Run the TensorFlowEvent collector, and return its exit code.

        `siblings` are the exit codes of the pod's containers that started before it, by name. It searches for
        the training's process once, and fails for good if it hasn't started yet.
        """
        args = _arguments(container)
        inside = PurePosixPath(args["-path"])
        folder = _volume(container, volumes, args["-path"])
        await asyncio.sleep(self.start_seconds)
        if not await _ended(pod, inside, siblings):
            log("Exception: Unable to find main pid from the process list")
            return 1
        if not _completed(folder):
            log(f"FileNotFoundError: [Errno 2] No such file or directory: '{inside / '<pid>.pid'}'")
            return 1
        names = args["-m"].split(";")
        logs = await asyncio.to_thread(lambda: list(_read_events(folder, str(inside), names, log)))
        if not any(one.metric == names[0] for one in logs):
            log(f"Objective metric {names[0]} is not found in training logs, {UNAVAILABLE} value is reported")
            logs = [Reported(UNAVAILABLE, 0, names[0])]
        log(f"In {args['-t']} {len(logs)} metrics will be reported.")
        self._metrics.report(args["-t"], logs)
        return 0

    async def lines(
        self, pod: Object, container: Object, volumes: Mapping[str, Path], log: Log, siblings: Siblings
    ) -> int:
        """Run the File and StdOut collector, and return its exit code."""
        args = _arguments(container)
        file = PurePosixPath(args["-path"])
        folder = _volume(container, volumes, str(file.parent))
        stopped = await self._watched(pod, container, folder / file.name, log, siblings)
        if stopped is not None:
            return stopped
        if not await _ended(pod, file.parent, siblings):
            log("Failed to wait for worker container: unable to find main pid from the process list []")
            return 255
        if not _completed(folder):
            why = f"training container is failed. Unable to read file {file.parent}/<pid>.pid"
            log(f"Failed to wait for worker container: {why}")
            return 255
        names, filters = args["-m"].split(";"), list(filter(None, args.get("-f", "").split(";")))
        try:
            logs = await asyncio.to_thread(
                read_lines, folder / file.name, names, filters, args["-format"], log
            )
        except ParseError as error:
            log(str(error))
            return 255
        log("Metrics reported. :")
        self._metrics.report(args["-t"], logs)
        return 0

    async def _watched(
        self, pod: Object, container: Object, file: Path, log: Log, siblings: Siblings
    ) -> int | None:
        """Watch the file while the training runs. Return the exit code if the rule was met; else None."""
        args = _arguments(container)
        if "-stop-rule" not in args:
            return None
        filters = list(filter(None, args.get("-f", "").split(";"))) or [DEFAULT_FILTER]
        watching = asyncio.create_task(watch(file, args["-stop-rule"], args["-o-type"], filters, log))
        ended = asyncio.create_task(_ended(pod, PurePosixPath(args["-path"]).parent, siblings))
        await asyncio.wait([watching, ended], return_when=asyncio.FIRST_COMPLETED)
        if not watching.done():
            watching.cancel()
            return None
        if not watching.result():
            return 255
        logs = read_lines(file, args["-m"].split(";"), filters, args["-format"], log)
        self._metrics.report(args["-t"], logs)
        await ended
        self._metrics.on_early_stop(args["-t"])
        log("Trial status is successfully updated")
        return 0


def _arguments(container: Object) -> dict[str, str]:
    return dict(zip(container["args"][::2], container["args"][1::2], strict=True))


def _volume(container: Object, volumes: Mapping[str, Path], inside: str) -> Path:
    mount = next(one for one in container["volumeMounts"] if one["mountPath"] == inside)
    return volumes[mount["name"]]


async def _ended(pod: Object, folder: PurePosixPath, siblings: Siblings) -> bool:
    """Wait for the training; False if its process is not there."""
    marker = f"echo completed > {folder}"
    containers = pod["spec"]["containers"]
    main = next(one["name"] for one in containers if marker in " ".join(one.get("args", [])))
    if main not in siblings or siblings[main].done():
        return False
    await asyncio.wait([siblings[main]])
    return True


def _completed(folder: Path) -> bool:
    return "completed" in [path.read_text().strip() for path in folder.glob("*.pid")]


def _read_events(folder: Path, inside: str, names: list[str], log: Log) -> Iterator[Reported]:
    """Yield values of matching tags: a tag must start with the metric's name, its directory end with it."""
    for path in sorted(one for one in folder.rglob("*tfevents*") if one.is_file()):
        place = PurePosixPath(inside) / path.relative_to(folder)
        log(f"{place} will be parsed.")
        for event in _records(path):
            for value in event.summary.value:
                for name in names if value.HasField("simple_value") else ():
                    above = str(PurePosixPath(name).parent) if "/" in name else ""
                    fits = value.tag.startswith(name.rpartition("/")[2])
                    if fits and str(place.parent).endswith(above):
                        yield Reported(str(value.simple_value), int(event.wall_time), name)


def _records(path: Path) -> Iterator[Any]:
    """Yield TFRecords (length, checksum, record, checksum) up to an incomplete one."""
    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            record = file.read(struct.unpack("<Q", head[:8])[0])
            if len(file.read(4)) < 4:
                return
            yield Event.FromString(record)
