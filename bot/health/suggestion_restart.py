"""Detect that a restart of Katib's suggestion service ended a search permanently. Pure.

`cmaes` and `sobol` keep their search in memory only. After a restart, the service doesn't know the earlier
trials and answers every request with an error (Katib's pkg/suggestion/v1beta1/goptuna, syncTrials). Katib
retries forever, and the experiment stays Running. The other algorithms continue or start over.
"""

from collections.abc import Iterable

from k8s.katib.spec import EXPERIMENT_LABEL
from k8s.objects import Manifest, parse_time
from k8s.pods import is_trial_pod

IN_MEMORY = {"cmaes", "sobol"}
CONTAINER = "suggestion"


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
