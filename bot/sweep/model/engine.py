"""The engine's adapter: what sweeps ask of Katib, operation by operation.

Elsewhere in `bot`, experiments and trials are values of `k8s.engine`; only the planned manifest, which
`k8s.katib.experiment` builds, is Katib's. k8s/katib/ENGINES.md says what each takes with another engine.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol

from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.sweep.model.changes import Delete, Patch
from k8s.api.client import KubernetesClient, Manifests
from k8s.engine import Experiment, SearchService, Trial, TrialState
from k8s.katib import patches, status
from k8s.katib.spec import EXPERIMENT_LABEL
from k8s.objects import SWEEP_LABEL, Manifest, Ref, read_each, read_once, ref_of

EXPERIMENT, TRIAL, SEARCH = "Experiment", "Trial", "Suggestion"  # the kinds of its objects
WATCHED = (EXPERIMENT, TRIAL)


class Reader(Protocol):
    """Reads from the API server, or from caches of it."""

    async def get(self, ref: Ref) -> Manifest | None: ...

    async def list(self, kind: str, namespace: str, *, labels: str) -> Manifests: ...


async def find_experiment(plan: SweepPlan, reader: Reader) -> Experiment | None:
    """Return the experiment of this name, which can be an older sweep's (`request_id`)."""
    found = await reader.get(plan.experiment_ref)
    return read_once(status.read_experiment, found) if found else None


async def list_trials(sweep: SweepRecord, plan: SweepPlan, reader: Reader) -> tuple[Trial, ...]:
    ref = plan.experiment_ref
    labels = f"{SWEEP_LABEL}={sweep.id},{EXPERIMENT_LABEL}={ref.name}"
    return read_trials(plan, await reader.list(TRIAL, ref.namespace, labels=labels))


async def list_unlabelled(plan: SweepPlan, cluster: KubernetesClient) -> tuple[Trial, ...]:
    """Return the experiment's trials that lost the sweep's label, or never had it, as it did."""
    ref = plan.experiment_ref
    found = await cluster.list(TRIAL, ref.namespace, labels=f"{EXPERIMENT_LABEL}={ref.name}")
    return read_trials(plan, [each for each in found if SWEEP_LABEL not in each["metadata"]["labels"]])


def read_trials(plan: SweepPlan, found: Manifests) -> tuple[Trial, ...]:
    words = {value: label for label, value in plan.branch_values.items()}
    return read_each(status.read_trial, found, plan.space.strategies, words)


def named_trials(experiment: Experiment) -> set[str]:
    """Return the names of the trials that the engine knows, in any state; none of those that a cache has."""
    lists = experiment.raw.get("status", {}).items()
    return {name for key, names in lists if key.endswith("TrialList") for name in names}


async def find_search(plan: SweepPlan, reader: Reader) -> SearchService | None:
    found = await reader.get(search_ref(plan))
    return status.read_search(found) if found else None


def search_ref(plan: SweepPlan) -> Ref:
    return Ref(SEARCH, plan.experiment_ref.namespace, plan.experiment_ref.name)


def is_pod_of(plan: SweepPlan, pod: Manifest) -> bool:
    """Return whether a pod belongs to the experiment: to a trial, or to its search service."""
    return bool(pod["metadata"].get("labels", {}).get(EXPERIMENT_LABEL) == plan.experiment_ref.name)


async def open_with_several_nodes(cluster: KubernetesClient, namespace: str) -> set[str]:
    """Return the sweeps that can start trials of several nodes. Raises ApiError and UnreachableError."""
    found = await cluster.list(
        EXPERIMENT, namespace, labels=SWEEP_LABEL, only=status.is_open_with_several_nodes
    )
    return {each["metadata"]["labels"][SWEEP_LABEL] for each in found}


async def delete_experiments(sweep: SweepRecord, plan: SweepPlan, cluster: KubernetesClient) -> None:
    """Delete those of all attempts, with their trials. Raises ApiError and UnreachableError."""
    labels = f"{SWEEP_LABEL}={sweep.id}"
    for found in await cluster.list(EXPERIMENT, plan.experiment_ref.namespace, labels=labels):
        if (each := status.read_experiment(found)).request_id == sweep.request_id:
            await cluster.delete(ref_of(found), uid=each.uid)


def stop_all(plan: SweepPlan, experiment: Experiment, why: str, now: datetime) -> Patch:
    """Let no more trials start; those that run need `stop_trials`."""
    return _status(plan, patches.stop_experiment(experiment.raw, f"Sweepbot: {why}", now))


def drain(plan: SweepPlan, experiment: Experiment, now: datetime) -> Patch:
    return _status(plan, patches.drain_experiment(experiment.raw, "Sweepbot: drained", now))


def pause(plan: SweepPlan, experiment: Experiment, now: datetime) -> Patch:
    return _status(plan, patches.pause_experiment(experiment.raw, now))


def resume(plan: SweepPlan, experiment: Experiment, now: datetime) -> Patch:
    return _status(plan, patches.resume_experiment(experiment.raw, now))


def reopen(plan: SweepPlan, experiment: Experiment, trials: Iterable[Trial], now: datetime) -> Patch:
    """Remove an end that was caused by trials that were deleted since; `trials`: those left."""
    states = [trial.state for trial in trials]
    failed = states.count(TrialState.FAILED)
    return _status(plan, patches.reopen_experiment(experiment.raw, len(states), failed, now))


def more_trials(plan: SweepPlan, experiment: Experiment) -> Patch:
    """Raise the counts to the plan's."""
    space = plan.space
    counts = {"total": space.max_trials, "parallel": space.parallel, "max_failed": space.max_failed}
    return Patch(ref=plan.experiment_ref, body=patches.more_trials(experiment.raw, **counts))


def relabeled(plan: SweepPlan, experiment: Experiment) -> Patch | None:
    """Restore labels that someone removed; Katib copies them to new trials. None if all are there."""
    found, wanted = experiment.raw["metadata"].get("labels") or {}, plan.experiment["metadata"]["labels"]
    lost = {label: value for label, value in wanted.items() if label not in found}
    body = {"metadata": {"labels": lost}}
    return Patch(ref=plan.experiment_ref, body=body, optional=True) if lost else None


def limit(
    plan: SweepPlan, experiment: Experiment, running: int, *, allowed: int, optional: bool
) -> Patch | None:
    """Let about so many trials run at once, and `allowed` in total; None if nothing has to change."""
    space = plan.space
    body = patches.paced(
        experiment.raw,
        total=space.max_trials,
        allowed=allowed,
        running=running,
        max_failed=space.max_failed,
    )
    return Patch(ref=plan.experiment_ref, body=body, optional=optional) if body else None


def stop_trials(
    plan: SweepPlan,
    trials: Iterable[Trial],
    why: str,
    now: datetime,
    *,
    state: TrialState = TrialState.KILLED,
    last: Mapping[str, tuple[int, float]] | None = None,
) -> tuple[Patch, ...]:
    """Stop these trials and keep what they reported; their Jobs are deleted after this.

    Args:
        state: what they then are.
        last: by trial, the step and value that the search learns from.
    """
    namespace, known, words = plan.experiment_ref.namespace, last or {}, f"Sweepbot: {why}"
    return tuple(
        Patch(
            ref=Ref(TRIAL, namespace, each.name),
            body=patches.kill_trial(each.raw, words, now, state=state, last=known.get(each.name)),
            subresource="status",
        )
        for each in trials
    )


def run_again(plan: SweepPlan, trial: Trial) -> Delete:
    """Delete a trial: Katib creates it again from its suggestion, with the same name and parameters."""
    return Delete(ref=Ref(TRIAL, plan.experiment_ref.namespace, trial.name), uid=trial.uid)


def _status(plan: SweepPlan, body: Manifest) -> Patch:
    return Patch(ref=plan.experiment_ref, body=body, subresource="status")
