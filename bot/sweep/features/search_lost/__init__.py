"""Report that Katib starts no more trials, because its suggestion service restarted and lost the search
(`cmaes`, `sobol`).

`cmaes` and `sobol` keep their search in memory only. After a restart, the service doesn't know the earlier
trials and answers every request with an error (Katib's pkg/suggestion/v1beta1/goptuna, syncTrials). Katib
retries forever, and the experiment stays Running. The other algorithms continue or start over.
"""

from dataclasses import dataclass
from datetime import datetime

from bot.core.events import Event
from bot.core.plan import SweepPlan
from bot.core.record import ACTIVE, SweepRecord
from bot.platform.slack.mrkdwn import code
from bot.sweep.clients import SweepClients
from bot.sweep.model import engine
from bot.sweep.model.feature import Feature, Moment, Step
from bot.sweep.model.observation import Observation, RawObjects
from bot.sweep.model.texts import loud
from k8s.objects import Manifest, parse_time
from k8s.pods import is_trial_pod

IN_MEMORY = {"cmaes", "sobol"}
CONTAINER = "suggestion"


@dataclass(frozen=True)
class SearchSeen:
    lost: bool = False


async def observe(sweep: SweepRecord, seen: Observation, _: SweepClients) -> Observation:
    """Add whether the search is lost; calls nothing."""
    if sweep.plan is None:
        return seen
    return seen.put(SearchSeen(lost=lost_search(sweep.plan, seen.raw)))


def lost_search(plan: SweepPlan, raw: RawObjects) -> bool:
    """Return whether the service restarted after the first trial, and the experiment still needs trials."""
    if plan.space.algorithm not in IN_MEMORY or raw.experiment is None:
        return False
    first = min((trial.created for trial in raw.trials if trial.created), default=None)
    if first is None:
        return False
    services = [pod for pod in raw.pods if engine.is_pod_of(plan, pod) and _serves(pod)]
    restarted = bool(services) and all(_restarted(pod, first) for pod in services)
    return restarted and len(raw.trials) < raw.experiment.max_trials


def _serves(pod: Manifest) -> bool:
    over = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
    return not (over or is_trial_pod(pod) or "deletionTimestamp" in pod["metadata"])


def _restarted(pod: Manifest, since: datetime) -> bool:
    """Return whether the pod, or its container, is younger than the first trial, by its creation time."""
    born = parse_time(pod["metadata"]["creationTimestamp"])
    if born and born > since:
        return True
    for each in pod.get("status", {}).get("containerStatuses") or ():
        if each["name"] == CONTAINER and each.get("restartCount"):
            began = parse_time(((each.get("state") or {}).get("running") or {}).get("startedAt"))
            return began is not None and began > since
    return False


def follow(sweep: SweepRecord, seen: Observation, _: datetime) -> SweepRecord:
    """Report it once for each experiment. A sweep that starts no more trials anyway needs no report."""
    if not seen.of(SearchSeen).lost or sweep.draining or sweep.holds:
        return sweep
    algorithm = code(sweep.plan.space.algorithm) if sweep.plan else "the algorithm"
    text = (
        f":warning: No new trials start: Katib's suggestion service restarted, and {algorithm} lost the "
        "state of its search. Running trials finish.\n"
        f"*Fix:* Run `/sweep drain {sweep.id}` to end this sweep with its results, then `/sweep rerun "
        f"{sweep.id}` to search again."
    )
    return sweep.enqueue_once(_key(sweep), loud(sweep, Event(kind="search_lost", text=text)))


def lines(sweep: SweepRecord) -> list[str]:
    is_lost = _key(sweep) in sweep.sent_keys and sweep.phase in ACTIVE
    return ["No new trials start: Katib's suggestion service lost the search."] if is_lost else []


def _key(sweep: SweepRecord) -> str:
    return f"search_lost/{sweep.attempt}"


FEATURE = Feature(
    name="search_lost",
    observe=observe,
    steps=(Step(at=Moment.RESULTS, decide=follow),),
    lines=lines,
)
