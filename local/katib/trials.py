"""Katib's trial controller: a Trial, its Job, and what the collector reported.

A Trial is Running as soon as its Job exists. It fails only with its Job, and succeeds only with metrics.
"""

import re

from local.katib.metrics import UNAVAILABLE, MetricsStore, Reported
from local.katib.progress import TRIAL_ENDS, objective_value
from local.katib.status import begin, conditions_of, finalizing, finish, is_true, mark
from local.katib.templates import ReconcileError, fill
from local.kubernetes.apiserver.kinds import Object, timestamp
from local.kubernetes.apiserver.store import Store, owner

EXPERIMENT = "katib.kubeflow.org/experiment"
COMPONENT = "trial-controller"


def trial_of(exp: Object, assignment: Object) -> Object:
    """Return the Trial of one assignment. Raises ReconcileError."""
    spec, meta, name = exp["spec"], exp["metadata"], assignment["name"]
    template, assignments = spec["trialTemplate"], assignment["parameterAssignments"]
    kept = ("primaryContainerName", "primaryPodLabels", "successCondition", "failureCondition")
    return {
        "apiVersion": exp["apiVersion"],
        "kind": "Trial",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {**meta.get("labels", {}), EXPERIMENT: meta["name"]},
            "ownerReferences": [owner(exp)],
        },
        "spec": {
            **{key: template[key] for key in kept if key in template},
            **({"retainRun": True} if template.get("retain") else {}),
            "metricsCollector": spec["metricsCollectorSpec"],
            "objective": spec["objective"],
            "parameterAssignments": assignments,
            "runSpec": fill(exp, name, assignments),
            **({"earlyStoppingRules": rules} if (rules := assignment.get("earlyStoppingRules")) else {}),
        },
    }


def reconcile(store: Store, metrics: MetricsStore, trial: Object) -> None:
    if "deletionTimestamp" in trial["metadata"]:
        metrics.forget(trial["metadata"]["name"])
    if finalizing(store, trial, "clean-metrics-in-db"):
        return
    if not is_true(trial, "Created"):
        begin(trial)
    elif (job := _job(store, trial)) and is_true(trial, "EarlyStopped"):
        trial["status"]["observation"] = metrics.observation(trial["metadata"]["name"], *_names(trial))
    elif job and not is_true(trial, *TRIAL_ENDS):
        _observe(store, metrics, trial, job)
    store.set_status(trial, trial["status"])


def _job(store: Store, trial: Object) -> Object | None:
    """Create the Job of an active trial if it is missing; delete that of an ended one without `retain`.

    A PyTorchJob counts as a Job here and in messages. Raises ReconcileError if the cluster has none.
    """
    run, ended = trial["spec"]["runSpec"], is_true(trial, *TRIAL_ENDS)
    meta, kind = run["metadata"], run["kind"]
    job = store.find(kind, meta["namespace"], meta["name"])
    if job is None and not ended:
        if kind not in [each.name for each in store.kinds()]:
            raise ReconcileError(f'no matches for kind "{kind}" in version "{run["apiVersion"]}"')
        job = store.create({**run, "metadata": {**meta, "ownerReferences": [owner(trial)]}})
        store.record_event(trial, "Normal", "JobCreated", f"Job {meta['name']} has been created", COMPONENT)
    elif job and ended and not trial["spec"].get("retainRun") and "deletionTimestamp" not in job["metadata"]:
        store.delete(kind, meta["namespace"], meta["name"], propagation="Foreground")
        store.record_event(trial, "Normal", "JobDeleted", f"Job {meta['name']} has been deleted", COMPONENT)
    return job


def _observe(store: Store, metrics: MetricsStore, trial: Object, job: Object) -> None:
    spec, status, subject = trial["spec"], trial["status"], f"Job {job['metadata']['name']}"
    if failed := _met(spec["failureCondition"], job):
        _end(trial, "Failed", "TrialFailed", "Trial has failed", failed)
        why = f"{failed.get('message', '')} {failed.get('reason', '')}"
        event = "Normal", "JobFailed", f"{subject} has failed. {why}"
    elif complete := _met(spec["successCondition"], job):
        names = _names(trial)
        if metrics.observation(trial["metadata"]["name"], *names) is None:
            if spec["metricsCollector"]["collector"]["kind"] != "Push":
                return
            metrics.record(trial["metadata"]["name"], [Reported(UNAVAILABLE, 0)])
        observation = metrics.observation(trial["metadata"]["name"], *names)
        status["observation"] = observation
        if objective_value(trial, "latest") != UNAVAILABLE:
            _end(trial, "Succeeded", "TrialSucceeded", "Trial has succeeded", complete)
            event = "Normal", "JobSucceeded", f"{subject} has succeeded"
        else:
            _end(trial, "MetricsUnavailable", "MetricsUnavailable", "Metrics are not available", complete)
            event = "Warning", "MetricsUnavailable", f"Metrics are not available for {subject}"
    elif not is_true(trial, "Running"):
        mark(trial, "Running", "TrialRunning", "Trial is running")
        event = "Normal", "JobRunning", f"{subject} is running"
    else:
        return
    store.record_event(trial, *event, COMPONENT)


def _names(trial: Object) -> list[str]:
    """Return the metrics that have a strategy, as Katib observes them; the objective first."""
    objective = trial["spec"]["objective"]
    names = [one["name"] for one in objective["metricStrategies"]]
    return sorted(names, key=lambda name: name != objective["objectiveMetricName"])


def stop_early(store: Store, trial: Object) -> None:
    """Add the condition that medianstop's service adds."""
    mark(trial, "EarlyStopped", "TrialEarlyStopped", "Trial is early stopped")
    store.set_status(trial, trial["status"])


def _met(expression: str, job: Object) -> Object | None:
    """Return the Job's condition that a GJSON expression of Katib's default form selects."""
    wanted = re.search(r'type=="(\w+)"', expression)
    return next(iter(conditions_of(job, wanted[1] if wanted else "")), None)


def _end(trial: Object, type_: str, reason: str, message: str, condition: Object) -> None:
    reason, message = (
        f"{text}. Job {key}: {condition[key]}" if condition.get(key) else text
        for key, text in (("reason", reason), ("message", message))
    )
    finish(trial, type_, reason, message)
    trial["status"]["completionTime"] = timestamp()
