"""Check whether the first trial of a gated sweep has proved healthy."""

from dataclasses import replace
from datetime import timedelta

from bot.clients import Clients
from bot.core.record import SweepRecord
from bot.lifecycle.observation import Observation
from k8s.api.logs import has_line_since

# Imports, data, and the first batch on the GPU fail within this time after the container's start.
STARTUP = timedelta(minutes=1)
POLL_INTERVAL = timedelta(seconds=15)  # logs are not watched


async def observe_gate(sweep: SweepRecord, seen: Observation, clients: Clients) -> Observation:
    """Add the first trial if its container still runs after STARTUP, and has shown that it works.

    It has reported a metric to MLflow, used a GPU (bot.idle.monitor), or logged a line after STARTUP.
    A trial without any of these has to finish first, which the cluster reports by itself.
    """
    up = (pod for pod in seen.pods if pod.running and not pod.abandoned and not pod.deleted)
    pod = next((pod for pod in up if not pod.index and pod.job not in seen.incomplete), None)
    if not sweep.gated or sweep.plan is None or pod is None or pod.running_since is None:
        return seen
    settled, now = pod.running_since + STARTUP, clients.now()
    if now < settled:
        return replace(seen, observe_again_in=min(settled - now, seen.observe_again_in or STARTUP))
    reported = seen.reading.latest if seen.reading else {}
    namespace = sweep.plan.experiment_ref.namespace
    if (
        pod.job in reported
        or await clients.store.is_busy_trial(pod.job)
        or await has_line_since(clients.trials, namespace, pod.name, pod.container, settled)
    ):
        return replace(seen, healthy=pod.job)
    return replace(seen, observe_again_in=min(POLL_INTERVAL, seen.observe_again_in or POLL_INTERVAL))
