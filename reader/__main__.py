"""Follow a training's event files until SIGTERM, which a native sidecar gets after the training's end: flags,
how often it looks, notes in the log, and the report to Katib.

While it trains, new points are printed as JSON lines, which the bot reads as a log. At the end, each metric's
first, least, greatest, and last value are reported to Katib, once: rows of an earlier time would make a
stale value the trial's if the last report failed. Then the last pictures are printed.

Environment: TRIAL, the trial's name; WORKER, which pod of
the trial this is: only the first one reports.
"""

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from reader.events import Picture
from reader.follow import Follower
from reader.katib import ReportError, replace_rows
from reader.pictures import Pictures
from reader.series import Metrics, Row, names

FIRST_WORKER = {"", "0", "master"}  # WORKER of a trial's only pod, of an Indexed Job's, of a PyTorchJob's
POLL_SECONDS = 1.0
BUFFERED = "The TensorBoard file is still empty."  # a rule of the first trial's health looks for it
RETRY_SECONDS = 1.0
READING_SHARE, REPORT_SHARE = 0.25, 0.7  # of the grace period, from SIGTERM to the end of each


class Stop(Protocol):
    def wait(self, seconds: float, /) -> bool: ...


class Sigterm:
    """SIGTERM, which is blocked, so that none comes too early and none interrupts the reader elsewhere."""

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._received = False

    def wait(self, seconds: float) -> bool:
        """Return whether it came, within these seconds or before."""
        self._received = self._received or signal.sigtimedwait({signal.SIGTERM}, seconds) is not None
        return self._received


def main(arguments: Sequence[str], environment: Mapping[str, str], stop: Stop) -> int:
    """Run until `stop`, and return the exit code: 1 if the report failed."""
    options = _options(arguments)
    if options.ready:
        Path(options.ready).touch()
    if environment.get("WORKER", "") not in FIRST_WORKER:
        while not stop.wait(POLL_SECONDS):
            pass
        return 0
    rungs = sorted(int(rung) for rung in options.rungs.split(",") if rung)
    metrics, pictures = Metrics(options.metric, rungs), Pictures()
    follower, buffered = Follower(options.folder), False
    while not stop.wait(POLL_SECONDS):
        _read(follower, metrics, pictures, lambda: stop.wait(0))
        _print(metrics, time.monotonic())
        if follower.is_buffered and not buffered and not any(each.count for each in metrics.all):
            _say(BUFFERED)
            buffered = True
    end = time.monotonic()
    _read(follower, metrics, pictures, lambda: time.monotonic() - end > options.grace * READING_SHARE)
    rows = [row for each in metrics.reported.values() for row in each.rows()]
    failure = _report(options.katib, environment.get("TRIAL", ""), rows, end + options.grace * REPORT_SHARE)
    _print(metrics, math.inf)
    with suppress(Exception):
        pictures.add_files(options.folder)
        for line in pictures.lines():
            _say(line)
    if failure:
        _say(failure)
    return 1 if failure else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m reader", description=__doc__)
    parser.add_argument("folder", help="that the training writes event files to")
    parser.add_argument("--metric", action="append", default=[], help="a tag to report; can be repeated")
    parser.add_argument("--rungs", default="", help="steps whose points are all printed, as 1,3,9")
    parser.add_argument("--katib", required=True, metavar="HOST:PORT", help="of Katib's database manager")
    parser.add_argument("--grace", type=float, default=30, help="seconds from SIGTERM to SIGKILL")
    parser.add_argument("--ready", default="", help="file to create once SIGTERM is handled")
    return parser.parse_args(arguments)


def _read(follower: Follower, metrics: Metrics, pictures: Pictures, enough: Callable[[], bool]) -> None:
    """Add new points. No error ends the reader: its report is still due."""
    with suppress(Exception):
        for folder, each in follower.poll(enough):
            if isinstance(each, Picture):
                pictures.add(names(folder, each.tag)[-1], each)
            else:
                metrics.add(folder, each)


def _print(metrics: Metrics, now: float) -> None:
    """Print the new points of each metric whose last line is old enough."""
    for each in metrics.all:
        if each.printed + each.pause <= now and (line := each.line()):
            each.printed = now
            _say(line)


def _say(line: str) -> None:
    with suppress(OSError, ValueError):
        print(line, flush=True)


def _report(address: str, trial: str, rows: Sequence[Row], deadline: float) -> str:
    """Report, with retries until `deadline`. Return why it failed; "" if it didn't, or there are no rows."""
    if not rows:
        return ""
    if not trial:
        return "The pod has no label katib.kubeflow.org/trial: is Katib's webhook down?"
    while True:
        try:
            replace_rows(address, trial, rows)
        except (OSError, ReportError, ValueError) as error:
            why = f"Can't report the metrics to Katib at {address}: {error}"
        else:
            return ""
        if time.monotonic() + RETRY_SECONDS >= deadline:
            return why
        time.sleep(RETRY_SECONDS)


if __name__ == "__main__":
    sigterm = Sigterm()  # first of all: one before it would be lost
    sys.exit(main(sys.argv[1:], os.environ, sigterm))
