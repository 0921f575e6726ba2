"""Check that a cluster can run trials of several nodes as configured, before anything is built."""

from bot.clients import Clients
from bot.core.errors import UserError
from bot.core.plan import SweepPlan
from k8s.errors import ApiError
from k8s.trial_kinds import JOB, TrialKind


async def check_trial_kind(plan: SweepPlan, clients: Clients) -> None:
    """Raise UserError if the cluster of the plan can't run its trials as this kind. Raises ApiError, too."""
    namespace = plan.experiment_ref.namespace
    if why := await kind_refusal(plan.trial_kind, namespace, clients):
        raise UserError(
            f"nodes={plan.nodes} can't run: `trials.multi_node` makes the trials {plan.trial_kind.kind}s, "
            f"but {why}. *Fix:* Ask an admin to fix this, or to set `multi_node: job`.",
            field="nodes",
        )


async def kind_refusal(kind: TrialKind, namespace: str, clients: Clients) -> str:
    """Return why trials of this kind can't run in the cluster; "" if they can.

    Raises UnreachableError, and ApiError for what another attempt can change.
    """
    if kind is JOB:
        return ""
    try:
        # The selector matches none: only whether the API server serves the kind counts.
        await clients.trials.list(kind.kind, namespace, labels=f"{kind.label}=none")
    except ApiError as error:
        if error.status == 404:
            return "Kubeflow's Training Operator isn't installed in the cluster"
        if error.status == 403:
            return f"Sweepbot has no permission to list {kind.kind}s"
        raise
    return ""
