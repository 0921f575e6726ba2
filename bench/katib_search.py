"""The search service beside Katib's own algorithms, which run as their services' code in a clone of Katib.

The three small trainings of `warm_start`, SEEDS searches each, with PARALLEL trials at once, of which the
oldest ends first: best values after TRIALS trials. Both sides get the requests that Katib's controller makes.
"""

import asyncio
import json
import os
import subprocess
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from google.protobuf import json_format

from bench.child import ROOT
from bench.environments import python_of
from bench.table import Row
from bench.warm_start import TASKS, Train, quartiles
from search import katib_pb2 as pb
from search.service import suggestions
from search.space import Space
from tests.search.process import Search, Status, experiment, trial

SEEDS, TRIALS, PARALLEL = 20, 24, 4
SOURCE = "KATIB_SOURCE"  # the variable that names a clone of kubeflow/katib at v0.19.0
PATHS = ("", "pkg/apis/manager/v1beta1/python", "pkg/apis/manager/health/python")  # as in its Dockerfiles
ENGINES = {"tpe": "hyperopt", "multivariate-tpe": "optuna", "random": "hyperopt"}
RESAMPLED = 10_000  # times, for the interval of a ratio

Suggest = Callable[[pb.GetSuggestionsRequest], list[dict[str, str]]]


async def run() -> list[Row]:
    return await asyncio.to_thread(_rows)


def _rows() -> list[Row]:
    source = os.environ.get(SOURCE)
    if not source:
        why = f"not measured: {SOURCE} names no clone of kubeflow/katib"
        return [Row(what="search: best value", against="Katib's algorithms", measured=why)]
    rows = []
    with (
        warnings.catch_warnings(),
        _katib(Path(source), "hyperopt") as hyperopt,
        _katib(Path(source), "optuna") as optuna,
    ):
        warnings.simplefilter("ignore")  # a poor setting doesn't converge
        engines = {"hyperopt": hyperopt, "optuna": optuna}
        for name, (space, train) in TASKS.items():
            ours = [_best(name, space, train, seed, "sweepbot", _own) for seed in range(SEEDS)]
            for algorithm, engine in ENGINES.items():
                suggest = engines[engine]
                theirs = [_best(name, space, train, seed, algorithm, suggest) for seed in range(SEEDS)]
                rows.append(_row(name, algorithm, ours, theirs))
    return rows


def _best(task: str, space: Space, train: Train, seed: int, algorithm: str, suggest: Suggest) -> list[float]:
    """Return the best value so far after each trial."""
    of = experiment(f"{task}-{algorithm}-{seed}", space, random_state=str(seed))
    of.spec.algorithm.algorithm_name = algorithm
    search, values = Search(of, total=TRIALS, parallel=PARALLEL), list[float]()
    while len(values) < TRIALS:
        if wanted := search.request():
            search.suggested += suggest(wanted)
        at = len(values)
        point = space.read(search.suggested[at])
        if point is None:
            raise RuntimeError(f"{algorithm} suggested {search.suggested[at]}, which isn't in the space")
        values.append(train(point, False))
        search.ended.append(trial(at, search.suggested[at], Status.SUCCEEDED, values[-1]))
    return [min(values[: at + 1]) for at in range(TRIALS)]


def _own(request: pb.GetSuggestionsRequest) -> list[dict[str, str]]:
    rows = suggestions(request).parameter_assignments
    return [{each.name: each.value for each in row.assignments} for row in rows]


@contextmanager
def _katib(source: Path, engine: str) -> Iterator[Suggest]:
    """Run one of Katib's services; its Python has the versions that Katib's images pin."""
    command = [python_of("bench-katib"), ROOT / "bench/peers/katib_search.py", engine]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(source / path) for path in PATHS)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process: Any = subprocess.Popen(command, env=env, text=True, **pipes)
    with process:

        def suggest(request: pb.GetSuggestionsRequest) -> list[dict[str, str]]:
            message = json_format.MessageToDict(request)
            for each in message.get("trials", ()):  # which our messages leave out
                each["spec"]["objective"] = message["experiment"]["spec"]["objective"]
            print(json.dumps(message), file=process.stdin, flush=True)
            found: list[dict[str, str]] = json.loads(process.stdout.readline())
            return found

        try:
            yield suggest
        finally:
            process.kill()


def _row(
    task: str, algorithm: str, ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]
) -> Row:
    ends = [np.array([each[-1] for each in one]) for one in (ours, theirs)]
    low, high = _interval(*ends)
    half = TRIALS // 2
    return Row(
        what=f"search, {task}: best value of {TRIALS} trials",
        against=f"Katib's {algorithm}",
        measured=f"{quartiles(ours, TRIALS)} vs {quartiles(theirs, TRIALS)}; 95% interval of the ratio "
        f"{low:.2f}-{high:.2f}; after {half} {quartiles(ours, half)} vs {quartiles(theirs, half)}",
        ratio=round(median(ends[0]) / median(ends[1]), 3),
        samples={"ours": ends[0].tolist(), "theirs": ends[1].tolist()},
    )


def _interval(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Return the bootstrap interval of the ratio of the medians."""
    random = np.random.default_rng(0)
    medians = [np.median(random.choice(each, (RESAMPLED, len(each))), axis=1) for each in (ours, theirs)]
    low, high = np.quantile(medians[0] / medians[1], (0.025, 0.975))
    return float(low), float(high)
