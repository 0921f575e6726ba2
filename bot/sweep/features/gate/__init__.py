"""The gate: one trial runs first, the others start once it is healthy (a metric, a busy GPU, or a line logged
after a minute), or a user decides.
"""

from datetime import timedelta

from bot.core.commands import Action
from bot.core.record import SweepRecord
from bot.sweep.clients import SweepClients
from bot.sweep.features.gate import decide
from bot.sweep.features.gate.decide import GateSeen, GateState
from bot.sweep.model.feature import CommandRule, Feature, Moment, Step
from bot.sweep.model.observation import Observation
from k8s.api.logs import has_line_since

# Imports, data, and the first batch on the GPU fail within this time after the container's start.
STARTUP = timedelta(minutes=1)
POLL_INTERVAL = timedelta(seconds=15)  # logs are not watched


async def observe(sweep: SweepRecord, seen: Observation, clients: SweepClients) -> Observation:
    """Add the first trial if its container still runs after STARTUP, and has shown that it works.

    It has reported a metric to MLflow, used a GPU (bot.watch.idle.monitor), or logged a line after STARTUP.
    A trial without any of these has to finish first, which the cluster reports by itself.
    """
    up = (pod for pod in seen.pods if pod.running and not pod.abandoned and not pod.deleted)
    pod = next((pod for pod in up if not pod.index and pod.job not in seen.incomplete), None)
    if not sweep.first_only or sweep.plan is None or pod is None or pod.running_since is None:
        return seen
    settled, now = pod.running_since + STARTUP, clients.now()
    if now < settled:
        return seen.again_in(min(settled - now, STARTUP))
    reported = seen.reading.latest if seen.reading else {}
    namespace = sweep.plan.experiment_ref.namespace
    if (
        pod.job in reported
        or await clients.store.is_busy_trial(pod.job)
        or await has_line_since(clients.trials, namespace, pod.name, pod.container, settled)
    ):
        return seen.put(GateSeen(healthy=pod.job))
    return seen.again_in(POLL_INTERVAL)


FEATURE = Feature(
    name="gate",
    states=(GateState,),
    planned=decide.planned,
    observe=observe,
    steps=(Step(at=Moment.HOLD, decide=decide.follow),),
    prepare=decide.prepare,
    continues=decide.is_held_or_will_be,
    commands={
        Action.OPEN: CommandRule(denial=decide.open_denial, apply=decide.open_gate, button=decide.OPEN),
        Action.RETRY: CommandRule(denial=decide.retry_denial, apply=decide.retry, button=decide.RETRY),
    },
    problem=decide.problem,
    lines=decide.lines,
    buttons=decide.buttons,
)
