"""What a sweep's next trials need, so that the leader measures free GPUs for them. Pure."""

from datetime import datetime

from bot.core.pace import CapacityRequest
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.sweep.model.observation import Observation
from k8s.katib.manifest import first_pod
from k8s.nodes.machines import PLACEMENT


def capacity_request(
    sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime
) -> CapacityRequest:
    pod = first_pod(plan.with_pod)
    together = plan.starts_together
    return CapacityRequest(
        sweep=sweep.id,
        namespace=plan.experiment_ref.namespace,
        queue=plan.queue,
        gpus=plan.gpus,
        resource=plan.resource,
        pods=plan.nodes,
        pod={key: pod[key] for key in PLACEMENT if key in pod},
        expects=_expected(sweep, plan) if together else 0,
        started=together and not seen.start_blocked,
        since=sweep.since if together and seen.start_blocked else None,
        auto=plan.space.auto,
        at=now,
    )


def _expected(sweep: SweepRecord, plan: SweepPlan) -> int:
    """Return how many pods its trials have at once, also between two trials.

    A pausing sweep keeps its nodes until it is paused: a resume before that starts trials without a check.
    """
    if sweep.draining:
        return 0
    parallel = sweep.parallel_now if plan.space.auto else plan.space.parallel
    return plan.nodes * max(0, min(parallel, plan.space.max_trials - sweep.progress.finished))
