"""Compute an Experiment's status from its trials: lists, counts, the best one, and whether it has ended."""

from local.katib.metrics import UNAVAILABLE
from local.katib.status import conditions_of, finish, mark
from local.kubernetes.apiserver.kinds import Object, timestamp

TRIAL_ENDS = ("Killed", "Failed", "Succeeded", "EarlyStopped", "MetricsUnavailable")
# Looked at in this order: a killed trial is killed, whatever else is true of it.
STATES = ("Killed", "Failed", "Succeeded", "EarlyStopped", "Running", "MetricsUnavailable")


def count_of(status: Object, state: str) -> int:
    count: int = status.get(_count_key(state), 0)
    return count


def _count_key(state: str) -> str:
    return "trialMetricsUnavailable" if state == "MetricsUnavailable" else f"trials{state}"


def summarize(exp: Object, trials: list[Object]) -> bool:
    """Write the trials into the status, and return whether one of them has reached the goal."""
    status = exp["status"]
    lists: dict[str, list[str]] = {state: [] for state in (*STATES, "Pending")}
    for trial in trials:
        true = {one["type"] for one in conditions_of(trial, *STATES)}
        state = next((state for state in STATES if state in true), "Pending")
        lists[state].append(trial["metadata"]["name"])
    for state, names in lists.items():
        for key in (listed := f"{state[0].lower()}{state[1:]}TrialList", _count_key(state)):
            status.pop(key, None)
        if names:
            status |= {listed: names, _count_key(state): len(names)}
    status["trials"] = len(trials)
    best, reached = _best(exp["spec"]["objective"], trials)
    if best:
        status["currentOptimalTrial"] = {
            "bestTrialName": best["metadata"]["name"],
            "parameterAssignments": best["spec"]["parameterAssignments"],
            "observation": best["status"]["observation"],
        }
    return reached


def _best(objective: Object, trials: list[Object]) -> tuple[Object | None, bool]:
    """Return the best of all trials, ended or not; a first NaN stays: comparisons with it are false."""
    sign = -1 if objective["type"] == "maximize" else 1
    goal, best, least, reached = objective.get("goal"), None, 0.0, False
    for trial in trials:
        if (text := objective_value(trial)) == UNAVAILABLE:
            continue
        try:
            value = sign * float(text)
        except ValueError:
            best = trial
            continue
        if best is None or value < least:
            best, least = trial, value
        reached |= goal is not None and least <= sign * goal
    return best, reached


def objective_value(trial: Object, strategy: str = "") -> str:
    """Return the objective by the metric's strategy: min, max, or latest."""
    objective = trial["spec"]["objective"]
    own = [one for one in objective["metricStrategies"] if one["name"] == objective["objectiveMetricName"]]
    chosen = strategy or own[0]["value"]
    found = trial.get("status", {}).get("observation", {}).get("metrics", [])
    for metric in (one for one in found if one["name"] == objective["objectiveMetricName"]):
        return chosen_value(metric, chosen)
    return UNAVAILABLE


def chosen_value(metric: Object, strategy: str) -> str:
    """Return the value that counts; the latest if there is no min and max, and "" without a strategy."""
    value: str = metric[strategy] if strategy else ""
    return metric["latest"] if value == UNAVAILABLE else value


def conclude(exp: Object, reached: bool) -> None:
    spec, status = exp["spec"], exp["status"]
    failed = count_of(status, "Failed") + count_of(status, "MetricsUnavailable")
    ended = sum(count_of(status, end) for end in TRIAL_ENDS)
    max_failed, most = spec.get("maxFailedTrialCount"), spec.get("maxTrialCount")
    if reached:
        end = "Succeeded", "ExperimentGoalReached", "succeeded because Objective goal has reached"
    elif max_failed is not None and 0 < failed >= max_failed:
        end = "Failed", "ExperimentFailed", "failed because max failed count has reached"
    elif most is not None and ended >= most:
        end = "Succeeded", "ExperimentMaxTrialsReached", "succeeded because max trial count has reached"
    else:
        mark(exp, "Running", "ExperimentRunning", "Experiment is running")
        return
    finish(exp, end[0], end[1], f"Experiment has {end[2]}")
    status["completionTime"] = timestamp()
