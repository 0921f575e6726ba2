"""Add the reader of TensorBoard's files to a trial's pod, in place of Katib's collector: its arguments, CPU,
memory, probe, and volumes. Pure.

It is a native sidecar, an init container that stays: it starts before the training, and gets SIGTERM when
that has ended. The pod and its Job aren't complete before it has stopped, so its report is there in time.
Without the startup probe, a training could end before SIGTERM is handled. Kubernetes 1.29 or later.
https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers
"""

from collections.abc import Sequence
from dataclasses import dataclass

from k8s.katib.manifest import KUBERNETES_GRACE
from k8s.objects import Manifest
from k8s.pods import READER
from k8s.trial_kinds import INDEX_LABEL, PYTORCH_JOB, REPLICA_TYPE_LABEL, TRIAL_LABEL, TrialKind

EVENTS, STATE = "events", "reader-state"  # volumes
STATE_FOLDER = "/state"
READY = f"{STATE_FOLDER}/ready"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """The reader's image, and where it reports."""

    image: str
    katib: str  # HOST:PORT of the database manager
    rungs: tuple[int, ...] = ()  # steps at which early stopping compares trials


def sidecar(
    reader: Reader,
    folder: str,
    metrics: Sequence[str],
    kind: TrialKind,
    *,
    grace: int | None,
    security: Manifest,
) -> Manifest:
    """Return the init container.

    Args:
        folder: that the training writes to.
        grace: the pod's, in seconds; None: Kubernetes' default.
        security: the training's context: another user can't read files that only their owner can.
    """
    rungs = ",".join(map(str, reader.rungs))
    worker = REPLICA_TYPE_LABEL if kind is PYTORCH_JOB else INDEX_LABEL
    return {
        "name": READER,
        "image": reader.image,
        "restartPolicy": "Always",
        "command": ["python", "-m", "reader", folder],
        "args": [
            *(f"--metric={name}" for name in metrics),
            *([f"--rungs={rungs}"] if rungs else []),
            f"--katib={reader.katib}",
            f"--grace={KUBERNETES_GRACE if grace is None else grace}",
            f"--ready={READY}",
        ],
        "env": [_label("TRIAL", TRIAL_LABEL), _label("WORKER", worker)],
        "startupProbe": {
            "exec": {"command": ["test", "-f", READY]},
            "periodSeconds": 1,
            "failureThreshold": 120,
        },
        # Why a report failed is its last line, which the pod's status then has.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "5m", "memory": "24Mi"}},
        "securityContext": {**security, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            {"name": EVENTS, "mountPath": folder, "readOnly": True},
            {"name": STATE, "mountPath": STATE_FOLDER},
        ],
    }


def volumes() -> list[Manifest]:
    return [{"name": EVENTS, "emptyDir": {}}, {"name": STATE, "emptyDir": {}}]


def _label(variable: str, label: str) -> Manifest:
    """Return a variable with the value of a label of the pod, "" without it."""
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}
