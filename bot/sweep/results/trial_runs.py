"""Determine which changes give each trial of an ended sweep one complete MLflow run: which run is its main
one, and its parameters, metrics, tags, and status. Pure.

Training code can log no run, one, several, or nested ones. If it crashes, its run is FINISHED, because MLflow
ends it when Python exits; if it is killed, its run stays RUNNING.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bot.sweep.results.models import SweepResults, TrialResult
from k8s.engine import TrialState

STATE_TAG = "sweepbot.state"  # tag: how the trial ended
FRONT_TAG = "sweepbot.pareto_front"  # tag of several objectives: whether no other trial beats it
SOURCE_TAG, FROM_KATIB = "sweepbot.source", "katib"  # tag of runs created by Sweepbot
RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"  # MLflow's states
STATUSES = {
    TrialState.SUCCEEDED: FINISHED,
    TrialState.NO_METRICS: FINISHED,
    TrialState.STOPPED_EARLY: FINISHED,
    TrialState.FAILED: FAILED,
    TrialState.KILLED: KILLED,
    TrialState.NOT_STARTED: KILLED,
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A trial's run in MLflow."""

    id: str
    trial: str
    status: str
    started: int = 0  # Unix milliseconds
    nested: bool = False
    ours: bool = False  # created by Sweepbot
    state: str = ""  # STATE
    front: str = ""  # FRONT_TAG
    params: frozenset[str] = frozenset()  # names
    metrics: frozenset[str] = frozenset()  # names


@dataclass(frozen=True, kw_only=True)
class RunChange:
    """Changes to one run."""

    trial: TrialResult
    run_id: str = ""  # "": create it
    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    status: str = ""  # "": unchanged
    delete: bool = False


def main_run(runs: Iterable[Run], metric: str) -> Run | None:
    """Return the trial's main run; None without runs.

    Runs that logged the objective are preferred, then those that aren't nested, then those with most of the
    parameters, because an evaluation after the training can log to a run of its own (Hugging Face's Trainer),
    then the one that started last, because a restarted trial logs to a new run.
    """

    def key(run: Run) -> tuple[bool, bool, int, int, str]:
        return metric in run.metrics, not run.nested, len(run.params), run.started, run.id

    return max(runs, key=key, default=None)


def changes(results: SweepResults, runs: Iterable[Run]) -> list[RunChange]:
    """Return the missing changes; none once all were applied."""
    by_trial: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_trial[run.trial].append(run)
    ended = (trial for trial in results.trials if trial.state in STATUSES)
    return [change for trial in ended for change in _of_trial(results, trial, by_trial[trial.name])]


def _of_trial(results: SweepResults, trial: TrialResult, runs: Sequence[Run]) -> Iterator[RunChange]:
    own = [run for run in runs if not run.ours]
    main = main_run(own or runs, results.space.metric)
    if change := _completed(results, trial, main):
        yield change
    for run in runs:
        if run is main:
            continue
        if run.ours:  # two workers created one, or the training's own run appeared later
            yield RunChange(trial=trial, run_id=run.id, delete=True)
        elif run.status == RUNNING:
            yield RunChange(trial=trial, run_id=run.id, status=STATUSES[trial.state])


def _completed(results: SweepResults, trial: TrialResult, run: Run | None) -> RunChange | None:
    """Return the change that completes the trial's run; None if it is complete."""
    front = front_tag(results, trial)
    if run and (run.state, run.front) == (trial.state, front) and run.status != RUNNING:
        return None
    status = STATUSES[trial.state]
    is_wrong = run is None or run.status == RUNNING or (run.status == FINISHED and status != FINISHED)
    tags = {STATE_TAG: trial.state.value} | ({FRONT_TAG: front} if front else {})
    metrics = dict(trial.more) | ({} if trial.value is None else {results.space.metric: trial.value})
    return RunChange(
        trial=trial,
        run_id=run.id if run else "",
        params={name: value for name, value in trial.parameters.items() if not run or name not in run.params},
        # A run of ours can have half a curve, which is written again.
        metrics={n: value for n, value in metrics.items() if not run or run.ours or n not in run.metrics},
        tags=tags | ({} if run else {SOURCE_TAG: FROM_KATIB}),
        status=status if is_wrong else "",
    )


def front_tag(results: SweepResults, trial: TrialResult) -> str:
    return str(trial.name in results.front).lower() if results.space.goals else ""
