"""How long `make test` and `.ci/run` take: about 20 minutes, so they run only if named."""

import asyncio
import subprocess
from time import monotonic

from bench.child import ROOT
from bench.table import Row, bounded

SUITES = {
    "make test": (("make", "test"), 3),
    ".ci/run": (("bash", ".ci/run"), 15),
}  # and the limit in minutes


async def run() -> list[Row]:
    return [await asyncio.to_thread(_timed, name, *suite) for name, suite in SUITES.items()]


def _timed(name: str, command: tuple[str, ...], limit: float) -> Row:
    """Raises CalledProcessError if it fails: then its time means nothing."""
    started = monotonic()
    subprocess.run(command, cwd=ROOT, check=True)
    return bounded(name, [(monotonic() - started) / 60], unit="min", at_most=limit)
