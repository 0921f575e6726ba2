"""How long `make test` and `.ci/run` take: about 25 minutes, so they run only if named."""

import asyncio
import subprocess
import sys
from time import time

from bench.child import ROOT
from bench.table import Row, bounded


async def run() -> list[Row]:
    fast = await asyncio.to_thread(_minutes, "make", "test")
    whole = await asyncio.to_thread(_minutes, ".ci/run")
    return [
        bounded("make test", [fast], unit="min", at_most=2),
        bounded(".ci/run", [whole], unit="min", at_most=10),
    ]


def _minutes(*command: str) -> float:
    """Raises CalledProcessError if it fails: then its time means nothing."""
    started = time()
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    return (time() - started) / 60
