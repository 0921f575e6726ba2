"""Trials with problems, as the rules get them."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.pod_health.evidence import TrialEvidence
from bot.sweep.features.health.rules import diagnose
from k8s.katib.status import read_experiment, read_search, read_trial
from k8s.objects import timestamp
from k8s.slim import slim
from tests.bot.factories import NOW

EARLIER = timestamp(NOW - timedelta(seconds=30))
ADMIN = "Ask an admin to check."
META = {"name": "t1", "namespace": "sweeps", "uid": "u", "creationTimestamp": EARLIER}
TRIAL = {"metadata": META, "spec": {"parameterAssignments": [{"name": "lr", "value": "0.1"}]}, "status": {}}
READ_TRIAL = partial(read_trial, strategies={"loss": "min"})
JOB = {"metadata": META, "spec": {}, "status": {}}
CONTAINERS = [{"name": "main"}, {"name": "metrics-logger-and-collector"}]


def a_pod(**status):
    return {"metadata": META, "spec": {"nodeName": "n1", "containers": CONTAINERS}, "status": status}


def in_state(state, **status):
    return a_pod(containerStatuses=[{"name": "main", "state": state}], **status)


def ended(code, reason="Error", **status):
    return in_state({"terminated": {"exitCode": code, "reason": reason}}, phase="Failed", **status)


def running(**status):
    return in_state({"running": {"startedAt": EARLIER}}, phase="Running", **status)


def waiting(reason, message):
    return in_state({"waiting": {"reason": reason, "message": message}}, phase="Pending")


def an_event(reason, message, count=1):
    return {
        "reason": reason,
        "message": message,
        "count": count,
        "firstTimestamp": EARLIER,
        "lastTimestamp": timestamp(NOW - timedelta(seconds=5)),
    }


def evidence(given, gpus):
    """Return the evidence from objects as the API server returns them."""
    reads = {"experiment": read_experiment, "trial": READ_TRIAL, "search": read_search}
    read = {name: reads[name](obj) if name in reads and obj else obj for name, obj in given.items()}
    return TrialEvidence(now=NOW, metric="loss", gpus=gpus, **read)


def found(pod=None, trial=TRIAL, job=JOB, gpus=1, **known):
    given = {"experiment": {"metadata": META, "status": {}}, "trial": trial, "job": job, "pod": pod} | known
    diagnosis = diagnose(evidence(given, gpus))
    kinds = {"experiment": "Experiment", "trial": "Trial", "job": "Job", "pod": "Pod"}
    kept = {name: given[name] and slim({"kind": kind, **given[name]}) for name, kind in kinds.items()}
    assert diagnose(evidence(given | kept, gpus)) == diagnosis
    return diagnosis and replace(diagnosis, cause="")  # see test_causes.py


def expected(key, text, fix="", detail="", *, due=None, failed=False, **changes):
    """Return the whole diagnosis of TRIAL; `due` in seconds from NOW, None: at once."""
    known = {"trial": "t1", "parameters": {"lr": "0.1"}, "failed": failed, "lasting": failed} | changes
    report_at = None if due is None else NOW + timedelta(seconds=due)
    return Diagnosis(key=key, text=text, fix=fix, detail=detail, report_at=report_at, **known)


def a_node(gpus, taints=(), **labels):
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}}
    return {"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": taints}, "status": status}


def key(*args, **known):
    """Return the diagnosis's key, of a crash without what its log names."""
    diagnosis = found(*args, **known)
    return diagnosis and diagnosis.key.partition("/")[0]


def unscheduled(message, seconds):
    at = timestamp(NOW - timedelta(seconds=seconds))
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return a_pod(phase="Pending", conditions=[{**why, "lastTransitionTime": at}])
