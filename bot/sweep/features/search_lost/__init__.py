"""Report that Katib starts no more trials, because its suggestion service lost the search.

`cmaes` and `sobol` keep their search in memory only. After a restart, the service doesn't know the earlier
trials and answers every request with an error (Katib's pkg/suggestion/v1beta1/goptuna, syncTrials). Katib
retries forever, and the experiment stays Running. The other algorithms continue or start over.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from bot.core.events import Event
from bot.core.record import ACTIVE, SweepRecord
from bot.platform.slack.mrkdwn import code
from bot.sweep.clients import SweepClients
from bot.sweep.model.feature import Feature, Step
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import loud
from k8s.katib.spec import EXPERIMENT_LABEL
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
    raw, algorithm = seen.raw, sweep.plan.space.algorithm
    return seen.put(SearchSeen(lost=lost_search(algorithm, raw.experiment, raw.trials, raw.pods)))


def lost_search(
    algorithm: str, experiment: Manifest | None, trials: Iterable[Manifest], pods: Iterable[Manifest]
) -> bool:
    """Return whether the service restarted after the first trial, and the experiment still needs trials."""
    created = sorted(trial["metadata"]["creationTimestamp"] for trial in trials)
    if algorithm not in IN_MEMORY or experiment is None or not created:
        return False
    services = [pod for pod in pods if _serves(pod, experiment)]
    restarted = bool(services) and all(_restarted(pod, created[0]) for pod in services)
    return restarted and len(created) < experiment["spec"]["maxTrialCount"]


def _serves(pod: Manifest, experiment: Manifest) -> bool:
    meta, name = pod["metadata"], experiment["metadata"]["name"]
    ours = meta.get("labels", {}).get(EXPERIMENT_LABEL) == name and not is_trial_pod(pod)
    over = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
    return ours and not over and "deletionTimestamp" not in meta


def _restarted(pod: Manifest, first: str) -> bool:
    """Return whether the pod, or its container, is younger than the first trial, by its creation time."""
    since, born = parse_time(first), parse_time(pod["metadata"]["creationTimestamp"])
    if since is None or born is None or born > since:
        return born is not None and since is not None
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


FEATURE = Feature(name="search_lost", observe=observe, lines=lines)
STEP = Step(phases=frozenset(ACTIVE), decide=follow)
