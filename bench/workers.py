"""CPU time of 1, 2, and 4 workers of one installation, for the same changes in the cluster.

All workers watch the cluster, so each more of them uses CPU time for a change that another one handles, and
can repeat a reconcile. On as many cores as workers, N of them make N / (CPU of N / CPU of one) times the
reconciles of one, as long as Redis and the API server have time left. There is no goal on fewer cores than
workers: those that wait for a core combine changes, so that several reconcile less than one.

A worker parses all objects of a sweep when it first reconciles it, and then only what changes. At the start,
one worker has done so with all sweeps, and each of N with a part: so all sweeps are first reconciled several
times.
"""

import os
from collections.abc import Sequence

from bench.scale import Figures, measured
from bench.table import Row, spread

SWEEPS = 100
GOALS = {2: 1.8, 4: 3.2}  # times the reconciles of one, by number of workers
ROUNDS = 2
WARM_ROUNDS = 4  # for each worker: at random, 1 of 100 sweeps is then new to each of four workers


async def run() -> list[Row]:
    rounds = [{count: await _measured(count) for count in (1, *GOALS)} for _ in range(ROUNDS)]
    return [_row(count, [(each[count], each[1]) for each in rounds]) for count in GOALS]


async def _measured(workers: int) -> Figures:
    return await measured(SWEEPS, workers=workers, rounds=WARM_ROUNDS * workers)


def _row(count: int, pairs: list[tuple[Figures, Figures]]) -> Row:
    ours, one = zip(*pairs, strict=True)
    has_cores = count <= (os.cpu_count() or 1)
    speedup = count * sum(each.cpu for each in one) / sum(each.cpu for each in ours)
    reconciles = [sum(each.reconciles for each in figures) for figures in (ours, one)]
    return Row(
        what=f"reconciles of {count} workers on {count} cores, from their CPU per change",
        against="1 worker",
        measured=f"{_cpu(ours)} vs {_cpu(one)}; {reconciles[0]:,} reconciles vs {reconciles[1]:,}",
        ratio=round(speedup, 3),
        goal=f"at least {GOALS[count]:g}x" if has_cores else "",
        met=speedup >= GOALS[count] if has_cores else None,
        samples={"ours": [each.cpu for each in ours], "one": [each.cpu for each in one]},
    )


def _cpu(figures: Sequence[Figures]) -> str:
    return spread([each.cpu for each in figures], "ms")
