"""CPU of one call of the search service, with the process, the parsing, and the answer; and its memory.

Six parameters, 16 trials running, and the others finished, as a sweep of that size asks for its next trial.
"""

import asyncio
import os
from pathlib import Path

from bench.table import Row, bounded
from search import katib_pb2 as pb
from search.ask import Method, ask
from search.space import Choice, Range, Space
from tests.search.process import Service, Status, experiment, request, trial
from tests.search.spaces import loss

ROUNDS, PARALLEL = 5, 16
SPACE = Space(
    dimensions=(
        Range(name="lr", low=1e-5, high=1e-1, log=True),
        Range(name="decay", low=1e-6, high=1e-2, log=True),
        Range(name="dropout", low=0.0, high=0.5, step=0.1),
        Range(name="layers", low=1, high=12, integer=True),
        Range(name="momentum", low=0.0, high=1.0),
        Choice(name="optimizer", values=("adam", "sgd", "lion")),
    )
)


async def run() -> list[Row]:
    return await asyncio.to_thread(_rows)


def _rows() -> list[Row]:
    service = Service()
    try:
        service.suggest(_request(100, 1))
        rows = [_cpu(service, 500, 1, 0.5), _cpu(service, 500, 16), _cpu(service, 1500, 1)]
        memory = [_memory(service.process.pid)]
        return [*rows, bounded("search: memory at 1,500 trials", memory, unit="MiB", at_most=200)]
    finally:
        service.kill()


def _cpu(service: Service, trials: int, n: int, at_most: float | None = None) -> Row:
    figures = []
    for at in range(ROUNDS):
        asked, before = _request(trials, n, at), _cpu_seconds(service.process.pid)
        service.suggest(asked)
        figures.append(_cpu_seconds(service.process.pid) - before)
    what = f"search: CPU of a call for {n} {'trial' if n == 1 else 'trials'} at {trials:,}"
    return bounded(what, figures, unit="s", at_most=at_most)


def _request(trials: int, n: int, seed: int = 0) -> pb.GetSuggestionsRequest:
    points = ask(SPACE, [], [], trials, seed, method=Method.SOBOL)
    made = []
    for number, point in enumerate(points):
        values = {name: str(value) for name, value in point.items()}
        if number < trials - PARALLEL:
            made.append(trial(number, values, Status.SUCCEEDED, loss(SPACE, point)))
        else:
            made.append(trial(number, values, Status.RUNNING))
    return request(experiment(f"bench-{seed}", SPACE), made, n, trials + n)


def _cpu_seconds(process: int) -> float:
    """Return the seconds of user and system time that the process has taken, in steps of 10 ms."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(process: int) -> float:
    """Return the most memory that the process ever had, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
