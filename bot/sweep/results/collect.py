"""Build an ended sweep's results from Katib's trials, their pods, and the GPU measurements: times, GPU-hours,
cost, and utilization of each trial. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.measure.gpus.models import HOUR, HourUse
from bot.platform.config.teams import Price, price_of
from bot.sweep.results.models import SweepResults, TrialResult
from bot.sweep.results.ranking import pareto_front
from k8s.engine import Trial, TrialState
from k8s.pods import Pod


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Data about a sweep's trials; all but `trials` can be missing or incomplete."""

    trials: Sequence[Trial] = ()
    pods: Sequence[Pod] = ()
    uses: Sequence[HourUse] = ()  # full hours of the sweep's pods
    katib_best: str = ""
    prices: tuple[Price, ...] = ()
    currency: str = "$"


@dataclass
class _Measured:
    """Sums of a trial's stored hours, in GPU-hours."""

    allocated: float = 0.0
    observed: float = 0.0
    used: float = 0.0
    cost: float = 0.0  # of the GPU-hours whose hours were stored with a price
    priced: float = 0.0  # these GPU-hours
    models: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # GPU-hours by model
    node: str = ""


def collect(sweep: SweepRecord, plan: SweepPlan, sources: Sources) -> SweepResults:
    """Return the results of an ended sweep."""
    pods, measured = defaultdict[str, list[Pod]](list), _measured(sources.uses, plan)
    for pod in sources.pods:
        pods[pod.job].append(pod)
    best = sweep.progress.best
    trials = [
        _trial(each, plan, pods[each.name], measured.get(each.name), sources.prices)
        for each in sources.trials
    ]
    front = pareto_front(plan.space.objectives, trials) if plan.space.goals else []
    return SweepResults(
        sweep=sweep.id,
        request_id=sweep.request_id,
        phase=sweep.phase,
        reason=sweep.reason,
        owner=sweep.requester.user,
        owner_name=sweep.requester.user_name,
        account=sweep.requester.account,
        channel=sweep.requester.channel,
        thread=sweep.thread or "",
        repo_url=plan.repo_url,
        branch=sweep.request.branch,
        commit=plan.commit,
        subject=plan.subject,
        image="" if plan.branches else sweep.image or "",
        space=plan.space,
        gpus=plan.gpus,
        nodes=plan.nodes,
        profile=plan.profile,
        mlflow_experiment=plan.results_name,
        mlflow_url=sweep.results_url or "",
        started=sweep.created,
        ended=sweep.since,
        currency=sources.currency,
        best=best.trial if best else "",
        katib_best=sources.katib_best,
        front=tuple(each.name for each in front),
        trials=tuple(sorted(trials, key=lambda each: each.name)),
    )


def trial_of(pod: str, plan: SweepPlan) -> str:
    """Return the trial's name from its pod's, which adds `-abcde`; of several, what their kind adds."""
    return pod.rsplit("-", 1 if plan.nodes == 1 else plan.trial_kind.worker_parts)[0]


def _measured(uses: Iterable[HourUse], plan: SweepPlan) -> Mapping[str, _Measured]:
    found: dict[str, _Measured] = defaultdict(_Measured)
    for use in uses:
        sums = found[trial_of(use.pod, plan)]
        sums.allocated += use.allocated
        sums.observed += use.observed
        sums.used += use.used
        sums.models[use.model] += use.allocated
        if use.price is not None:
            sums.cost += use.allocated * use.price
            sums.priced += use.allocated
        sums.node = use.node or sums.node
    return found


def _trial(
    trial: Trial,
    plan: SweepPlan,
    pods: Sequence[Pod],
    measured: _Measured | None,
    prices: tuple[Price, ...],
) -> TrialResult:
    live, sums = trial.state is TrialState.LIVE, measured or _Measured()
    started, ended = _times(trial, pods)
    known = [model for model in sums.models if model]
    model = max(known, key=lambda each: sums.models[each], default="")
    hours = _gpu_hours(plan.trial_gpus, pods, sums)
    price = sums.cost / sums.priced if sums.priced else price_of(prices, model) if model else None
    return TrialResult(
        name=trial.name,
        state=trial.state,
        parameters=trial.parameters,
        value=trial.value,
        more=trial.more,
        started=started,
        ended=None if live else ended,
        node=next((pod.node for pod in reversed(pods) if pod.node), sums.node),
        gpu_model=model,
        gpu_hours=hours,
        utilization=min(sums.used / sums.observed, 1.0) if sums.observed else None,
        cost=None if price is None or hours is None else hours * price,
    )


def _times(trial: Trial, pods: Sequence[Pod]) -> tuple[datetime | None, datetime | None]:
    """Return when the training started and ended; Katib's times include waiting for GPUs and the image."""
    began = [pod.began for pod in pods if pod.began]
    ended = [pod.ended for pod in pods if pod.ended]
    created = None if trial.state is TrialState.NOT_STARTED else trial.started
    return min(began, default=created), max(ended, default=trial.ended)


def _gpu_hours(gpus: int, pods: Sequence[Pod], sums: _Measured) -> float | None:
    """Return the allocated GPU-hours, from the pods' times or the measurements, whichever is larger.

    Neither is complete: Kubernetes deletes pods, and only full hours are measured. Of several nodes, the one
    with the longest known time counts for all: a trial's end deletes the pods that still run. `gpus`: of the
    whole trial.
    """
    known: dict[int, float] = defaultdict(float)  # hours by node
    for pod in pods:
        since = pod.scheduled or pod.began
        if since and pod.ended:
            known[pod.index] += max((pod.ended - since) / HOUR, 0.0)
    by_pods = gpus * max(known.values()) if known else None
    by_hours = sums.allocated or None
    return max((each for each in (by_pods, by_hours) if each is not None), default=None)
