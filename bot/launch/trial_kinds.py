"""Check that a cluster can run trials of several nodes as configured, before anything is built."""

from bot.clients import Clients
from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.plan import SweepPlan
from k8s.api.errors import ApiError
from k8s.katib.train_job import MAX_VARIABLES
from k8s.trial_kinds import JOB, TRAIN_JOB, TrialKind


async def check_trial_kind(plan: SweepPlan, clients: Clients) -> None:
    """Raise UserError if the plan's cluster can't run its trials as this kind. Raises ApiError, too."""
    _check_variables(plan)
    namespace = plan.experiment_ref.namespace
    if why := await kind_refusal(plan.trial_kind, namespace, clients):
        raise UserError(
            f"nodes={plan.nodes} can't run: `trials.multi_node` makes the trials {plan.trial_kind.kind}s, "
            f"but {why}. *Fix:* Ask an admin to fix this, or to set `multi_node: job`.",
            field="nodes",
        )


def _check_variables(plan: SweepPlan) -> None:
    """Raise UserError if the API server would reject each TrainJob, after the build."""
    if plan.trial_kind is not TRAIN_JOB:
        return
    count = len(plan.experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["trainer"]["env"])
    if count > MAX_VARIABLES:
        has_flags = plan.space.flags is FlagStyle.ENV
        fix = "Pass parameters as arguments, without `flags: env`" if has_flags else "Use fewer `secrets:`"
        raise UserError(
            f"nodes={plan.nodes} can't run: its trials are TrainJobs, and a TrainJob can have at most "
            f"{MAX_VARIABLES} variables. This sweep has {count}, those of Sweepbot included. *Fix:* "
            f"{fix}, or remove variables from `env:`.",
            field="space",
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
            return f"{kind.operator} isn't installed in the cluster"
        if error.status == 403:
            return f"Sweepbot has no permission to list {kind.kind}s"
        raise
    return ""
