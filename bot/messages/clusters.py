"""Texts about the cluster of a sweep's trials. Pure."""

from bot.core.events import Event
from bot.core.plan import HOME_CLUSTER, SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.slack.mrkdwn import code, local_time, plain


def unseen_line(sweep: SweepRecord) -> str:
    """Return since when the cluster hasn't answered; "" if it answers."""
    if sweep.unseen_since is None:
        return ""
    since = f"Cluster {code(sweep.cluster)} hasn't answered since {local_time(sweep.unseen_since)}"
    why = f": {plain(sweep.unseen_reason)}" if sweep.unseen_reason else "."
    then = "Remaining pods are stopped" if sweep.phase is Phase.STOPPING else "The sweep continues"
    return f"{since}{why} {then} when the cluster answers again."


def placed(plan: SweepPlan) -> str:
    """Return the cluster for the parent message; "" for the home cluster if there was no choice."""
    is_named = plan.cluster != HOME_CLUSTER or plan.cluster_reason
    return f"cluster {code(plan.cluster)}" if is_named else ""


def cluster_chosen(sweep: SweepRecord, event: Event) -> str:
    return f"Cluster {code(sweep.cluster)}: {plain(event.text)}."
