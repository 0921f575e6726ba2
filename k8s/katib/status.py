"""Read the state of experiments and trials."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from k8s.objects import Manifest, Ref, parse_time, true_conditions


class ExperimentState(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    state: ExperimentState
    raw: Manifest
    reason: str = ""
    message: str = ""

    @property
    def max_trials(self) -> int:
        return int(self.raw["spec"]["maxTrialCount"])

    @property
    def best(self) -> str:
        """Return the name of Katib's own optimum; "" before it has one. After a NaN it never changes."""
        return str((self.raw.get("status", {}).get("currentOptimalTrial") or {}).get("bestTrialName") or "")


IMAGE_OF_BRANCH = re.compile(r"(?<=.)@sha256:[0-9a-f]{64}$")  # after a branch's name, in a parameter's value
INACTIVE = "%inactive"  # the search service's word for a parameter whose condition isn't met
STOPPED_EARLY = "SweepbotStoppedEarly"  # reason of the Killed condition
NOT_STARTED = "SweepbotNotStarted"  # the same, if the sweep ended before the trial got a node


class TrialState(StrEnum):
    LIVE = "live"  # created, queued, or running: only its pod shows which
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NO_METRICS = "no metrics"  # succeeded without the objective's metric; Katib counts it as failed
    KILLED = "killed"
    STOPPED_EARLY = "stopped early"  # by medianstop, whose metrics up to then count, or by Sweepbot
    NOT_STARTED = "not started"  # it never got a node before the sweep ended


_KILLED_STATES = {STOPPED_EARLY: TrialState.STOPPED_EARLY, NOT_STARTED: TrialState.NOT_STARTED}  # by reason


@dataclass(frozen=True, kw_only=True)
class Trial:
    name: str
    state: TrialState
    parameters: dict[str, str]
    value: float | None  # of the objective, if finite
    more: dict[str, float] = field(default_factory=dict)  # of additional metrics, if finite
    started: datetime | None = None  # by Katib: its Job was created
    ended: datetime | None = None
    raw: Manifest

    @cached_property
    def killed(self) -> bool:
        """Whether Sweepbot's condition ended the trial: its Job has to be deleted, too."""
        return self.state is TrialState.KILLED or "Killed" in true_conditions(self.raw)


def read_experiment(obj: Manifest | None) -> Experiment | None:
    """Read the state. Only Succeeded or Failed end it; completionTime and Restarting can be outdated."""
    if obj is None:
        return None
    true_now = true_conditions(obj)
    for type_, state in (("Succeeded", ExperimentState.SUCCEEDED), ("Failed", ExperimentState.FAILED)):
        if condition := true_now.get(type_):
            return Experiment(
                state=state,
                raw=obj,
                reason=condition.get("reason", ""),
                message=condition.get("message", ""),
            )
    return Experiment(state=ExperimentState.RUNNING, raw=obj)


def read_trial(obj: Manifest, strategies: Mapping[str, str]) -> Trial:
    """Read a trial. `strategies`: which value counts (min, max, or latest) by metric, the objective first."""
    metric, *additional = strategies
    values = {name: _value(obj, name, strategies[name]) for name in strategies}
    assignments = obj.get("spec", {}).get("parameterAssignments") or []
    status = obj.get("status", {})
    return Trial(
        name=obj["metadata"]["name"],
        state=_trial_state(obj),
        parameters={a["name"]: _word(str(a["value"])) for a in assignments if a["value"] != INACTIVE},
        value=values[metric],
        more={name: value for name in additional if (value := values[name]) is not None},
        started=parse_time(status.get("startTime")),
        ended=parse_time(status.get("completionTime")),
        raw=obj,
    )


def _word(value: str) -> str:
    """Return the value as people know it: of a branch with the digest of its image, the branch."""
    return IMAGE_OF_BRANCH.sub("", value)


def _trial_state(obj: Manifest) -> TrialState:
    true_now = true_conditions(obj)
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
    observation = obj.get("status", {}).get("observation") or {}
    for entry in observation.get("metrics") or []:
        if entry["name"] == metric:
            return _finite(entry.get(strategy, ""))
    return None


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:  # Katib writes "unavailable" for no value
        return None
    return value if math.isfinite(value) else None


def ui_link(base: str, experiment: Ref) -> str:
    """Return the URL of the experiment in Katib's UI (its app-routing.module.ts)."""
    return f"{base}/katib/experiment/{experiment.namespace}/{experiment.name}"


def is_open_with_several_nodes(obj: Manifest) -> bool:
    """Return whether the experiment can start trials that have several pods; all but Jobs are such trials."""
    job = obj["spec"].get("trialTemplate", {}).get("trialSpec") or {}
    several = job.get("kind") != "Job" or job["spec"].get("completions", 1) > 1
    return bool(job) and several and not {"Succeeded", "Failed"} & true_conditions(obj).keys()
