"""`make chaos SEED=n`: sweeps under faults drawn from a seed. Exit code 1 when an invariant breaks.

In memory first, without and with a Redis that loses everything; then on real processes.
"""

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from bot.platform.storage.redis_client import connect
from local.redis import redis as server
from tests.chaos import processes
from tests.chaos.figures import Figures
from tests.chaos.wave import Wave

AT_ONCE = 10  # sweeps of a wave
SHARE_WITH_FLUSHES = 5  # of the sweeps and faults, one in so many comes again with FLUSHALL among the faults


@dataclass
class Run:
    seed: int
    url: str

    async def in_memory(self, sweeps: int, faults: int, *, flush: bool = False) -> Figures:
        figures, name = Figures(), "flush" if flush else "wave"
        async with connect(self.url) as redis:
            for start in range(0, sweeps, AT_ONCE):
                size = min(AT_ONCE, sweeps - start)
                share = round(faults * (start + size) / sweeps) - figures.faults.total()
                seed = f"{self.seed}/{name}/{start}"
                wave = await Wave(redis, seed, size, max(share, 0), flush=flush).run()
                figures += wave.figures
                print(
                    f"  {seed}: {wave.figures.faults.total()} faults, {wave.fingerprint()}", file=sys.stderr
                )
        return figures


def _part(name: str, run: Coroutine[Any, Any, Figures]) -> list[str]:
    """Print a part's figures when it ends; return the invariants that broke."""
    figures = asyncio.run(run)
    print(f"\n{name}\n{figures}", flush=True)
    return figures.broken


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    asked.add_argument("--seed", type=int, default=int(time.time()))
    asked.add_argument("--sweeps", type=int, default=200)
    asked.add_argument("--faults", type=int, default=1000)
    asked.add_argument("--processes", type=int, default=6, help="sweeps on real processes; 0: none")
    asked = asked.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.chaos", *sys.argv[1:]])  # noqa: S606
    logging.disable(logging.CRITICAL)
    print(f"seed {asked.seed}")
    broken = []
    with server() as url:
        run = Run(asked.seed, url)
        broken += _part("In memory", run.in_memory(asked.sweeps, asked.faults))
        fewer = asked.sweeps // SHARE_WITH_FLUSHES, asked.faults // SHARE_WITH_FLUSHES
        broken += _part("In memory, with FLUSHALL", run.in_memory(*fewer, flush=True))
    if asked.processes:
        broken += _part("Real processes", processes.run(asked.seed, asked.processes))
    for each in broken:
        print(f"\nBROKEN with seed {asked.seed}: {each}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
