"""Status patches that end an experiment or a trial, or let it go on."""

from datetime import datetime

from k8s.objects import Manifest, timestamp


def killed(trial: Manifest, message: str, now: datetime) -> Manifest:
    """The status patch that ends one trial and keeps its history; its Job is to be deleted after this.

    Killed goes FIRST: Katib tells the suggestion service only the last condition, and goptuna (sobol, cmaes)
    never answers again after a trial that ends with Killed.
    """
    return _ended(trial, "Killed", "TrialKilled", message, now, first=True)


DRAINED = "SweepbotDrained"
GOAL_REACHED = "ExperimentGoalReached"
MAX_TRIALS_REACHED = "ExperimentMaxTrialsReached"


def ended(experiment: Manifest, message: str, now: datetime) -> Manifest:
    """The status patch after which Katib starts no more trials. Running ones run on: `killed` ends those."""
    return _closed(experiment, "Failed", "SweepbotStopped", message, now)


def drained(experiment: Manifest, message: str, now: datetime) -> Manifest:
    """As `ended`, for an experiment that did well; Katib goes on counting what still runs."""
    return _closed(experiment, "Succeeded", DRAINED, message, now)


def more_trials(total: int) -> Manifest:
    """The patch that extends an experiment. Katib takes it from one that reached its number of trials, and is
    LongRunning. It takes a moment until the old Succeeded condition goes.
    """
    return {"spec": {"maxTrialCount": total}}


def _closed(experiment: Manifest, type_: str, reason: str, message: str, now: datetime) -> Manifest:
    patch = _ended(experiment, type_, reason, message, now, first=False)
    patch["status"]["completionTime"] = timestamp(now)
    return patch


def _ended(obj: Manifest, type_: str, reason: str, message: str, now: datetime, *, first: bool) -> Manifest:
    at = timestamp(now)
    times = {"lastTransitionTime": at, "lastUpdateTime": at}
    condition = {"type": type_, "status": "True", "reason": reason, "message": message, **times}
    # A merge patch replaces lists whole: all conditions are sent, with a resourceVersion, refused if stale.
    others = [
        {**c, "status": "False", **times} if c["type"] == "Running" else c
        for c in obj.get("status", {}).get("conditions") or []
    ]
    conditions = [condition, *others] if first else [*others, condition]
    version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
    return {"metadata": version, "status": {"conditions": conditions}}
