"""Build the patches that stop, pause, resume, drain, or extend an experiment, change how many trials run in
parallel, with those that Katib doesn't subtract, or stop a trial.
"""

from datetime import datetime

from k8s.engine import End, TrialState
from k8s.katib.spec import ENDED_COUNTS, EXPERIMENT_COUNTS, STOPPED_STEP, STOPPED_VALUE, UNREPORTED_COUNT
from k8s.katib.status import ENDED_BECAUSE, KILLED_BECAUSE
from k8s.objects import Manifest, timestamp


def kill_trial(
    trial: Manifest,
    message: str,
    now: datetime,
    *,
    state: TrialState = TrialState.KILLED,
    last: tuple[int, float] | None = None,
) -> Manifest:
    """Return the status patch that stops one trial and keeps its history; delete its Job after this.

    Killed goes FIRST: Katib sends only the last condition to the suggestion service, and goptuna (sobol,
    cmaes) never answers again after a trial whose last condition is Killed.

    Args:
        state: what the trial then is.
        last: step and value, for the search service; None: unknown.
    """
    patch = _ended(trial, "Killed", KILLED_BECAUSE[state], message, now, first=True)
    if last is not None:
        texts = {STOPPED_STEP: str(last[0]), STOPPED_VALUE: repr(last[1])}
        metrics = [{"name": name, **dict.fromkeys(("min", "max", "latest"), t)} for name, t in texts.items()]
        patch["status"]["observation"] = {"metrics": metrics}
    return patch


def stop_experiment(experiment: Manifest, message: str, now: datetime) -> Manifest:
    """Return the status patch that fails an experiment. Running trials need `kill_trial`."""
    return _closed(experiment, "Failed", "SweepbotStopped", message, now)


def drain_experiment(experiment: Manifest, message: str, now: datetime) -> Manifest:
    """Return the patch that completes an experiment; Katib still counts trials that finish later."""
    return _closed(experiment, "Succeeded", ENDED_BECAUSE[End.DRAINED], message, now)


def pause_experiment(experiment: Manifest, now: datetime) -> Manifest:
    """Return the patch that completes an experiment until `resume_experiment`; it must be LongRunning."""
    return _closed(experiment, "Succeeded", ENDED_BECAUSE[End.PAUSED], "Sweepbot: paused", now)


def resume_experiment(experiment: Manifest, now: datetime) -> Manifest:
    """Return the patch that removes the experiment's end: Katib starts trials again."""
    times = {"lastTransitionTime": timestamp(now), "lastUpdateTime": timestamp(now)}
    conditions = [
        {**c, "status": "True", **times} if c["type"] == "Running" else c
        for c in experiment["status"]["conditions"]
        if c["type"] not in {"Succeeded", "Failed"}
    ]
    version = {"resourceVersion": experiment["metadata"]["resourceVersion"]}
    return {"metadata": version, "status": {"conditions": conditions}}


def reopen_experiment(experiment: Manifest, trials: int, failed: int, now: datetime) -> Manifest:
    """Return the patch that removes an end which deleted trials caused.

    Katib doesn't count again while there are no trials, and then creates none beyond the former counts.
    """
    patch = resume_experiment(experiment, now)
    patch["status"] |= {"trials": trials, "trialsFailed": failed}
    return patch


def more_trials(experiment: Manifest, *, total: int, parallel: int, max_failed: int) -> Manifest:
    """Return the one patch that lets an experiment run more trials.

    Katib accepts it while the experiment runs, and after ExperimentMaxTrialsReached if it is LongRunning; the
    Succeeded condition then disappears a moment later. parallelTrialCount is never lowered: Katib would
    delete the newest trials, finished ones included.
    """
    now, counts = experiment["spec"], {"parallelTrialCount": parallel, "maxFailedTrialCount": max_failed}
    raised = {name: count for name, count in counts.items() if count > now.get(name, 0)}
    return {"spec": {"maxTrialCount": total, **raised}}


def paced(experiment: Manifest, *, total: int, allowed: int, running: int, max_failed: int) -> Manifest:
    """Return the patch for about `running` parallel trials and `total` trials; {} if none is due.

    Until more are, only `allowed` trials can be created, of which `running` are no more.

    parallelTrialCount only rises, and maxTrialCount throttles below it. The webhook requires maxTrialCount
    above the trials created so far and not below the other two counts. A maxFailedTrialCount above it
    can't be reached until it rises again, and is omitted until then. ENDED_COUNTS are what Katib subtracts
    before it starts trials.
    """
    spec, made = experiment["spec"], _count(experiment, "trials")
    if made >= total:
        return {}
    ended = _count(experiment, *ENDED_COUNTS)
    parallel = min(total, max(spec["parallelTrialCount"], running))
    wanted = total if running >= parallel else min(total, max(parallel, ended + running))
    wanted = max(parallel, min(wanted, allowed))
    least, now = max(wanted, made + 1), spec["maxTrialCount"]
    all_ended = ended + _count(experiment, UNREPORTED_COUNT) >= made
    most = least if wanted > now or all_ended else min(least, now)
    if most <= made:  # no trial starts in any case, and the webhook rejects all patches
        return {}
    counts = dict(
        zip(EXPERIMENT_COUNTS, (most, parallel, max_failed if max_failed <= most else None), strict=True)
    )
    changed = {name: count for name, count in counts.items() if count != spec.get(name)}
    return {"spec": changed} if changed else {}


def _count(experiment: Manifest, *names: str) -> int:
    """Return the sum of these counts of trials in the status."""
    return sum(int(experiment.get("status", {}).get(name, 0)) for name in names)


def _closed(experiment: Manifest, type_: str, reason: str, message: str, now: datetime) -> Manifest:
    patch = _ended(experiment, type_, reason, message, now, first=False)
    patch["status"]["completionTime"] = timestamp(now)
    return patch


def _ended(obj: Manifest, type_: str, reason: str, message: str, now: datetime, *, first: bool) -> Manifest:
    at = timestamp(now)
    times = {"lastTransitionTime": at, "lastUpdateTime": at}
    condition = {"type": type_, "status": "True", "reason": reason, "message": message, **times}
    # A merge patch replaces lists: send all conditions, and a resourceVersion to reject a stale one.
    others = [
        {**c, "status": "False", **times} if c["type"] == "Running" else c
        for c in obj.get("status", {}).get("conditions") or []
    ]
    conditions = [condition, *others] if first else [*others, condition]
    version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
    return {"metadata": version, "status": {"conditions": conditions}}
