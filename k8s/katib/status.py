"""Read from Katib's objects why an experiment ended, each trial's state (killed, stopped early, without
metrics) and values, also NaN, and why the search rejected a space.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from k8s.engine import End, Experiment, ExperimentState, SearchService, Trial, TrialState
from k8s.katib.spec import ENDED_COUNTS, EXPERIMENT_COUNTS, INACTIVE, REQUEST_ID, UNREPORTED_COUNT
from k8s.objects import CONDITION_FIELDS, Manifest, conditions, parse_time, still_live, true_conditions

# Reasons of an experiment's end.
ENDED_BECAUSE = {
    End.ALL_TRIALS: "ExperimentMaxTrialsReached",
    End.TARGET: "ExperimentGoalReached",
    End.DRAINED: "SweepbotDrained",
    End.PAUSED: "SweepbotPaused",
    End.FAILED: "ExperimentFailed",
}
_ENDS = {reason: end for end, reason in ENDED_BECAUSE.items()}
TOO_MANY_FAILED = "Experiment has failed because max failed count has reached"  # the message
# Reasons of a trial's condition Killed, by what it makes of the trial.
KILLED_BECAUSE = {
    TrialState.KILLED: "TrialKilled",
    TrialState.STOPPED_EARLY: "SweepbotStoppedEarly",
    TrialState.NOT_STARTED: "SweepbotNotStarted",
}
_KILLED_STATES = {reason: state for state, reason in KILLED_BECAUSE.items()}
_FINAL = {"Killed", "EarlyStopped", "MetricsUnavailable"}  # beside those of other kinds of objects

# What `read_experiment` and `read_trial` need of the objects, for `k8s.slim`.
SHAPES: dict[str, Any] = {
    "Trial": {
        "spec": {"parameterAssignments": {"name": True, "value": True}},
        "status": {
            **dict.fromkeys(("startTime", "completionTime"), True),
            "conditions": CONDITION_FIELDS,
            "observation": {"metrics": True},
        },
    },
    "Experiment": {
        "spec": dict.fromkeys(EXPERIMENT_COUNTS, True),
        "status": {
            **dict.fromkeys(("trials", UNREPORTED_COUNT, *ENDED_COUNTS), True),
            "conditions": CONDITION_FIELDS,
            "currentOptimalTrial": {"bestTrialName": True},
        },
    },
}


def is_live(obj: Manifest) -> bool:
    """Return whether an object of a sweep hasn't ended; of any kind."""
    return still_live(obj) and not _FINAL & true_conditions(obj).keys()


def read_experiment(obj: Manifest) -> Experiment:
    """Read the state. Only Succeeded or Failed end it; completionTime and Restarting can be outdated."""
    meta, spec, status = obj["metadata"], obj.get("spec", {}), obj.get("status", {})
    state, end, message = _end(obj)
    return Experiment(
        state=state,
        end=end,
        message=message,
        max_trials=_count(spec, "maxTrialCount") or 0,
        max_failed=_count(spec, "maxFailedTrialCount"),
        made=_count(status, "trials") or 0,
        best=str((status.get("currentOptimalTrial") or {}).get("bestTrialName") or ""),
        uid=meta.get("uid", ""),
        created=parse_time(meta.get("creationTimestamp")),
        request_id=meta.get("annotations", {}).get(REQUEST_ID, ""),
        raw=obj,
    )


def _count(fields: Manifest, name: str) -> int | None:
    """Return a count; None without one. Katib's CRDs have no schema, so the API server takes anything."""
    found = fields.get(name)
    return found if isinstance(found, int) else None


def _end(obj: Manifest) -> tuple[ExperimentState, End, str]:
    """Return the state, and why it ended, with Katib's message."""
    true_now = true_conditions(obj)
    if over := true_now.get("Succeeded"):
        end = _ENDS.get(over.get("reason", ""), End.OTHER)
        return ExperimentState.SUCCEEDED, end, over.get("message", "")
    if over := true_now.get("Failed"):
        message = over.get("message", "")
        end = _ENDS.get(over.get("reason") or ENDED_BECAUSE[End.FAILED], End.OTHER)
        return ExperimentState.FAILED, End.TOO_MANY_FAILED if message == TOO_MANY_FAILED else end, message
    return ExperimentState.RUNNING, End.NONE, ""


def read_trial(
    obj: Manifest, strategies: Mapping[str, str], words: Mapping[str, str] = MappingProxyType({})
) -> Trial:
    """Read a trial.

    Args:
        strategies: which value counts (min, max, or latest) by metric, the objective first.
        words: what people call some values of parameters.
    """
    metric, *additional = strategies
    values = {name: _value(obj, name, strategies[name]) for name in strategies}
    meta, assignments = obj["metadata"], obj.get("spec", {}).get("parameterAssignments") or []
    given = {each["name"]: str(each["value"]) for each in assignments}
    status, true_now = obj.get("status", {}), true_conditions(obj)
    return Trial(
        name=meta["name"],
        state=_trial_state(true_now),
        parameters={name: words.get(value, value) for name, value in given.items() if value != INACTIVE},
        value=values[metric],
        not_finite=_not_finite(obj, metric),
        more={name: value for name in additional if (value := values[name]) is not None},
        message=true_now.get("Failed", {}).get("message", ""),
        created=parse_time(meta.get("creationTimestamp")),
        started=parse_time(status.get("startTime")),
        ended=parse_time(status.get("completionTime")),
        killed="Killed" in true_now,
        uid=meta.get("uid", ""),
        raw=obj,
    )


def _trial_state(true_now: Mapping[str, Manifest]) -> TrialState:
    if killed := true_now.get("Killed"):
        return _KILLED_STATES.get(killed.get("reason", ""), TrialState.KILLED)
    if "Succeeded" in true_now:
        return TrialState.SUCCEEDED
    if "EarlyStopped" in true_now:
        return TrialState.STOPPED_EARLY
    if "Failed" in true_now:
        return TrialState.FAILED
    if "MetricsUnavailable" in true_now:
        return TrialState.NO_METRICS
    return TrialState.LIVE


def _value(obj: Manifest, metric: str, strategy: str) -> float | None:
    """Return a finite value: Katib accepts NaN, and then keeps it as the best one."""
    value = _reported(obj, metric, strategy)
    return value if value is not None and math.isfinite(value) else None


def _not_finite(obj: Manifest, metric: str) -> str:
    value = _reported(obj, metric, "latest")
    if value is None or math.isfinite(value):
        return ""
    return "NaN" if math.isnan(value) else "infinite"


def _reported(obj: Manifest, metric: str, strategy: str) -> float | None:
    observation = obj.get("status", {}).get("observation") or {}
    for entry in observation.get("metrics") or []:
        if entry["name"] == metric:
            try:
                return float(entry.get(strategy, ""))
            except ValueError:  # Katib writes "unavailable" for no value
                return None
    return None


def read_search(obj: Manifest) -> SearchService:
    """Read a Suggestion."""
    true_now = true_conditions(obj)
    failed = true_now.get("Failed")
    return SearchService(
        ready="DeploymentReady" in true_now,
        rejection=None if failed is None else failed.get("message", ""),
        message=conditions(obj).get("DeploymentReady", {}).get("message", ""),
    )


def is_open_with_several_nodes(obj: Manifest) -> bool:
    """Return whether the experiment can start trials that have several pods; all but Jobs are such trials."""
    job = obj["spec"].get("trialTemplate", {}).get("trialSpec") or {}
    several = job.get("kind") != "Job" or job["spec"].get("completions", 1) > 1
    return bool(job) and several and _end(obj)[0] is ExperimentState.RUNNING
