"""The results of an ended sweep: its trials, and the code and image they ran, stored as compressed JSON.

They must fit in a ConfigMap, which Kubernetes limits to 1 MiB. If a sweep has too many trials, the best ones
are stored, and `omitted` counts the others.
"""

import zlib
from dataclasses import dataclass, field, replace
from datetime import datetime

from bot.core.curves import Curve
from bot.core.record import Phase
from bot.core.space import SearchSpace
from bot.core.stored_format import StoredFormat
from bot.sweep.results.ranking import ranked
from k8s.engine import TrialState

MAX_STORED = 900_000  # bytes, compressed
MAX_PARSED = 256 * 2**20  # bytes, uncompressed


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialResult:
    """One trial's result. None and "" mean unknown."""

    name: str
    state: TrialState
    parameters: dict[str, str]
    value: float | None = None  # of the objective, by its strategy; finite
    more: dict[str, float] = field(default_factory=dict)  # of additional metrics; finite
    started: datetime | None = None  # of its training; Katib's time for the trial if its pod is gone
    ended: datetime | None = None
    node: str = ""  # the last one, if the trial was restarted
    gpu_model: str = ""
    gpu_hours: float | None = None  # allocated, of all its pods
    utilization: float | None = None  # mean, 0 to 1, of the measured part of these GPU-hours
    cost: float | None = None  # in the sweep's currency
    run_url: str = ""  # MLflow


@dataclass(frozen=True, kw_only=True)
class SweepResults:
    """An ended sweep's results. Times are UTC."""

    sweep: str
    request_id: str  # of the sweep's record
    phase: Phase  # how it ended
    reason: str = ""
    owner: str  # Slack user id
    owner_name: str = ""
    account: str = ""  # as in Requester
    channel: str  # Slack channel id
    thread: str = ""  # ts of the parent message
    repo_url: str
    branch: str
    commit: str  # 40 hexadecimal digits
    subject: str = ""  # the commit message's first line
    image: str = ""  # by digest
    space: SearchSpace
    gpus: int  # per node of a trial
    nodes: int = 1  # per trial
    profile: str = ""  # "": none are configured
    mlflow_experiment: str = ""  # name
    mlflow_url: str = ""
    started: datetime  # when the sweep was requested
    ended: datetime
    currency: str = "$"
    best: str = ""  # name of the reported best trial; "" for seeds, or without a finite objective
    katib_best: str = ""  # name of Katib's own optimum
    front: tuple[str, ...] = ()  # names of the trials that none beats (`pareto_front`), of several objectives
    trials: tuple[TrialResult, ...] = ()  # by name
    omitted: int = 0  # trials that didn't fit into the stored form
    curves: dict[str, Curve] = field(default_factory=dict)  # of the best trials, from MLflow; finite
    runs_pending: bool = True  # whether MLflow's runs are still to be completed
    schema: int = 1  # as in SweepRecord

    @property
    def best_trial(self) -> TrialResult | None:
        return next((trial for trial in self.trials if trial.name == self.best), None)


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What an ended sweep used, for the limits of a month."""

    sweep: str
    owner: str  # Slack user id
    account: str = ""  # as in Requester
    gpu_hours: float  # of trials whose GPU-hours are known
    cost: float  # of those whose GPUs have a known price
    unpriced: float = 0.0  # the GPU-hours of the others


def spent(results: SweepResults) -> Spent:
    known = [(each.gpu_hours, each.cost) for each in results.trials if each.gpu_hours is not None]
    return Spent(
        sweep=results.sweep,
        owner=results.owner,
        account=results.account,
        gpu_hours=sum(used for used, _ in known),
        cost=sum(cost or 0.0 for _, cost in known),
        unpriced=sum(used for used, cost in known if cost is None),
    )


FORMAT = StoredFormat(SweepResults, "results", migrations=())


def dump(results: SweepResults, limit: int = MAX_STORED) -> bytes:
    """Return the stored form, at most `limit` bytes. It takes a second for 20,000 trials: use a thread."""
    stored = zlib.compress(FORMAT.dump(results))
    while len(stored) > limit and results.trials:
        results = _without_worst(results, keep=int(len(results.trials) * min(limit / len(stored), 1) * 0.95))
        stored = zlib.compress(FORMAT.dump(results))
    return stored


def load(stored: bytes) -> SweepResults:
    """Return stored results. Raises ValueError if they are invalid, NewerFormatError if they are newer."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(stored, MAX_PARSED)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    return FORMAT.load(text)


def _without_worst(results: SweepResults, keep: int) -> SweepResults:
    best = {each.name for each in ranked(results.space.goal, results.trials, results.best)[:keep]}
    trials = tuple(trial for trial in results.trials if trial.name in best)
    return replace(results, trials=trials, omitted=results.omitted + len(results.trials) - len(trials))
