"""How long `.ci/run` and its part `make test` take: about 14 minutes, so they run only if named."""

import asyncio
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from time import time

from bench.child import ROOT
from bench.table import Row, bounded

# Bash writes each command of .ci/run with the time of its start to descriptor 9.
TRACED = "exec 9>\"$1\"; BASH_XTRACEFD=9; PS4='+ $EPOCHREALTIME '; set -x; . .ci/run"
COMMAND = re.compile(r"^\++ (\d+)[.,](\d+) (.*)$", re.MULTILINE)


async def run() -> list[Row]:
    with tempfile.NamedTemporaryFile(mode="r", prefix="sweepbot-bench-") as trace:
        started = time()
        await asyncio.to_thread(_run, trace.name)
        whole, fast = time() - started, seconds_of("make test", trace.read())
    return [_row("make test", fast, 3), _row(".ci/run", whole, 15)]


def seconds_of(command: str, trace: str) -> float:
    """Return the seconds from a command's start to that of the next one. Raises RuntimeError without one."""
    started = [(float(f"{each[1]}.{each[2]}"), each[3]) for each in COMMAND.finditer(trace)]
    for (at, name), (until, _) in pairwise(started):
        if name == command:
            return until - at
    raise RuntimeError(f".ci/run has no step `{command}` that another follows")


def _run(trace: str) -> None:
    """Raises CalledProcessError if it fails: then its time means nothing."""
    command = ["bash", "-c", TRACED, ".ci/run", trace]
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)


def _row(name: str, seconds: float, limit: float) -> Row:
    """`limit`: in minutes."""
    return bounded(name, [seconds / 60], unit="min", at_most=limit)
