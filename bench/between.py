"""How long a GPU idles between two trials of a sweep, beside a warm loop in one process.

The loop is what an agent does that calls the training's function with one setting after another: it imports
its libraries once. A trial is a pod of its own: its end has to be seen, the next pod made, scheduled, and
started, and its libraries imported. With one trial more in parallel than the GPUs hold, that one's pod waits
for the GPU already.

The local world has one node whose GPUs are one trial's. Its controllers answer at once, and images are there.
"""

import asyncio
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.real_sweeps import QUIET, to_its_end
from bench.table import Row, interleaved, spread
from local.world import World, commit, world

TRIALS, ROUNDS, SECONDS, LIMIT = 5, 2, 10, 1.2
AGAINST = f"a warm loop in one process, {TRIALS} trainings of {SECONDS} s"
PROGRAM = f"""
import argparse, json, time
from sklearn.linear_model import SGDClassifier  # as much as a small training imports


def train(width, times):
    began = time.time()
    time.sleep({SECONDS})  # the GPU is in use
    print(f"loss={{width}}", flush=True)
    with open(times, "a") as file:
        print(json.dumps([began, time.time()]), file=file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--times")
    parser.add_argument("--width", type=int, nargs="+")
    options = parser.parse_args()
    for width in options.width:
        train(width, options.times)
"""
SPACE = """
command: python between.py --times={times}
objective: {{metric: loss, goal: minimize}}
algorithm: grid
metrics: {{from: stdout}}
trials: {{max: {trials}, parallel: 1, max_failed: 1}}
parameters:
  width: [{widths}]
"""
Span = tuple[float, float]  # Unix seconds: when a training began and ended


async def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="sweepbot-bench-", ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(world(Path(folder), nodes={"gpu-1": 1}))
            here.env |= QUIET
            sweeps = Sweeps(here, Path(folder) / "times")
            await here.start_bot("serve", "work")
            taken = await interleaved(ROUNDS, sweeps.loop, sweeps.alone, sweeps.waiting, warm_up=False)
    loop, *ours = taken
    whats = "as many trials in parallel as GPUs", "one trial more than GPUs"
    return [_row(what, spans, loop) for what, spans in zip(whats, ours, strict=True)]


def _row(what: str, ours: list[list[Span]], theirs: list[list[Span]]) -> Row:
    ratios = [_whole(mine) / _whole(loop) for mine, loop in zip(ours, theirs, strict=True)]
    idle = [median(later[0] - earlier[1] for earlier, later in pairwise(spans)) for spans in ours]
    return Row(
        what=f"GPU idle between two trials, {what}",
        against=AGAINST,
        measured=spread(idle, "s"),
        ratio=round(median(ratios), 3),
        goal=f"all in at most {LIMIT:g}x the time",
        met=median(ratios) <= LIMIT,
        samples={"idle": idle, "ours": [*map(_whole, ours)], "theirs": [*map(_whole, theirs)]},
    )


def _whole(spans: list[Span]) -> float:
    """Return the seconds from the first training's begin to the last one's end."""
    return max(end for _, end in spans) - min(begin for begin, _ in spans)


class Sweeps:
    def __init__(self, here: World, times: Path) -> None:
        self._here, self._times = here, times
        copy = here.git / "digits"
        self._program = copy / "between.py"
        self._program.write_text(PROGRAM)
        widths = ", ".join(map(str, range(1, TRIALS + 1)))
        space = SPACE.format(times=times, trials=TRIALS, widths=widths)
        (copy / "sweeps" / "between.yaml").write_text(space)
        commit(copy, "Train for some seconds")

    async def loop(self) -> list[Span]:
        command = (self._program, "--times", self._times, "--width", *map(str, range(1, TRIALS + 1)))
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.DEVNULL
        )
        if await process.wait():
            raise RuntimeError(f"the loop exited with {process.returncode}")
        return self._taken()

    async def alone(self) -> list[Span]:
        return await self._sweep(1)

    async def waiting(self) -> list[Span]:
        return await self._sweep(2)

    async def _sweep(self, parallel: int) -> list[Span]:
        words = f"repo=digits branch=main space=between gpus=1 parallel={parallel} gate=off"
        await to_its_end(self._here, words)
        return self._taken()

    def _taken(self) -> list[Span]:
        spans = sorted(map(json.loads, self._times.read_text().splitlines()))
        self._times.unlink()
        if len(spans) != TRIALS:
            raise RuntimeError(f"{len(spans)} trainings ended, not {TRIALS}")
        return spans
