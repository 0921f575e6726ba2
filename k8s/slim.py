"""Reduce pods, Jobs, trials, and experiments to what reconciles read.

Everything else is dropped before an object is kept in memory: pod templates, managed fields, annotations.
"""

from typing import Any

from k8s.katib.spec import EXPERIMENT_LABEL, REQUEST_ID
from k8s.katib.status import SHAPES as KATIB_SHAPES
from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL
from k8s.objects import BUILD_LABEL, CONDITION_FIELDS, ENVIRONMENT_LABEL, SWEEP_LABEL, Manifest, picked
from k8s.trial_kinds import POD_LABELS, TRIAL_LABEL

_CONTAINERS = dict.fromkeys(("name", "state", "lastState", "restartCount"), True)
_LABELS = (
    *(SWEEP_LABEL, BUILD_LABEL, ENVIRONMENT_LABEL, EXPERIMENT_LABEL),
    *(*POD_LABELS, TRIAL_LABEL, QUEUE_LABEL, PRIORITY_LABEL),
)
_METADATA = {
    **dict.fromkeys(
        ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"), True
    ),
    "labels": dict.fromkeys(_LABELS, True),
    "annotations": {REQUEST_ID: True},
    "ownerReferences": {"kind": True, "uid": True},
}
_JOB_STATUS = {"startTime": True, "completionTime": True, "conditions": CONDITION_FIELDS}
_SHAPES: dict[str, Any] = {
    "Pod": {
        "spec": {
            **dict.fromkeys(("nodeName", "nodeSelector", "tolerations", "activeDeadlineSeconds"), True),
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": True}},
            "volumes": {"persistentVolumeClaim": {"claimName": True}},
            "initContainers": {"name": True},
            "containers": {
                "name": True,
                "resources": {"limits": True, "requests": True},
                "securityContext": {"runAsUser": True},
            },
        },
        "status": {
            **dict.fromkeys(("phase", "reason", "message"), True),
            "conditions": CONDITION_FIELDS,
            "containerStatuses": _CONTAINERS,
            "initContainerStatuses": _CONTAINERS,
        },
    },
    "StatefulSet": {"spec": {"replicas": True}, "status": {"readyReplicas": True}},
    "Job": {"spec": {"suspend": True}, "status": _JOB_STATUS},
    "PyTorchJob": {"spec": {"runPolicy": {"suspend": True}}, "status": _JOB_STATUS},
    "TrainJob": {
        "spec": {"suspend": True},
        "status": {"conditions": CONDITION_FIELDS, "jobsStatus": {"name": True}},
    },
    **KATIB_SHAPES,
}


def slim(obj: Manifest) -> Manifest:
    """Return a copy with only what reconciles read; texts are cut at 4,096 characters."""
    shape = {"kind": True, "apiVersion": True, "metadata": _METADATA, **_SHAPES[obj["kind"]]}
    found: Manifest = picked(obj, shape)
    return found
