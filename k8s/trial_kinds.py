"""The kinds of objects that run trials, and what differs between them: names, labels, statuses. Pure.

Most trials are Jobs. A trial of several nodes is one of these; "Job" in names and texts is any of them:

- an Indexed Job
- a PyTorchJob of Kubeflow's Training Operator v1, whose pods are one master and the workers. Here, the master
  is worker 0.
- a TrainJob of Kubeflow Trainer 2, which creates a JobSet of the same name, which creates an Indexed Job
"""

from collections.abc import Mapping
from dataclasses import dataclass

from k8s.objects import Manifest

TRIAL_LABEL = "katib.kubeflow.org/trial"  # of pods, by Katib's webhook
JOB_LABEL = "batch.kubernetes.io/job-name"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"  # of Indexed Jobs, since Kubernetes 1.28
# Of the Training Operator: pkg/apis/kubeflow.org/v1/common_types.go
PYTORCH_JOB_LABEL = "training.kubeflow.org/job-name"
REPLICA_TYPE_LABEL = "training.kubeflow.org/replica-type"  # master or worker
REPLICA_INDEX_LABEL = "training.kubeflow.org/replica-index"  # from 0 in each type
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"  # of JobSet: api/jobset/v1alpha2/jobset_types.go
NODE = "node"  # Trainer's name for the container of the training, and for the JobSet's part with it


@dataclass(frozen=True, kw_only=True)
class TrialKind:
    kind: str
    api_version: str
    container: str  # of the training, in each pod
    label: str  # of each pod: the name of its Job
    worker_parts: int = 2  # that the name of a worker's pod adds: `-3-abcde`, `-worker-2`
    operator: str = ""  # that runs it; "": Kubernetes itself


JOB = TrialKind(kind="Job", api_version="batch/v1", container="main", label=JOB_LABEL)
# The operators require these container names.
PYTORCH_JOB = TrialKind(
    kind="PyTorchJob",
    api_version="kubeflow.org/v1",
    container="pytorch",
    label=PYTORCH_JOB_LABEL,
    operator="Kubeflow's Training Operator",
)
TRAIN_JOB = TrialKind(
    kind="TrainJob",
    api_version="trainer.kubeflow.org/v1alpha1",
    container=NODE,
    label=JOBSET_LABEL,
    worker_parts=4,  # `-node-0-3-abcde`
    operator="Kubeflow Trainer 2",
)
TRIAL_KINDS = {each.kind: each for each in (JOB, PYTORCH_JOB, TRAIN_JOB)}
POD_LABELS = (
    *(JOB_LABEL, INDEX_LABEL),
    *(PYTORCH_JOB_LABEL, REPLICA_TYPE_LABEL, REPLICA_INDEX_LABEL),
    JOBSET_LABEL,
)


def kind_of_pod(pod: Manifest) -> TrialKind | None:
    """Return the kind of the Job that a pod belongs to; None for other pods.

    The pods of a TrainJob also have the label of the Job below it, so the plain Job comes last.
    """
    labels = pod["metadata"].get("labels", {})
    return next((each for each in reversed(TRIAL_KINDS.values()) if each.label in labels), None)


def job_of_pod(pod: Manifest) -> str:
    """Return the name of the pod's Job, which is that of its trial; "" for other pods."""
    kind = kind_of_pod(pod)
    return str(pod["metadata"]["labels"][kind.label]) if kind else ""


def training_container(pod: Manifest) -> str:
    """Return the name of the container that trains; of an environment's pod, the one that serves."""
    return (kind_of_pod(pod) or JOB).container


def pod_index(pod: Manifest) -> int:
    """Return the number of a pod among those of its Job, from 0; 0 if it is the only one."""
    labels: Mapping[str, str] = pod["metadata"].get("labels", {})
    index = _number(labels, INDEX_LABEL) or _number(labels, REPLICA_INDEX_LABEL)
    return index + (labels.get(REPLICA_TYPE_LABEL) == "worker")


def _number(labels: Mapping[str, str], label: str) -> int:
    text = str(labels.get(label, ""))
    return int(text) if text.isdecimal() else 0


def owner_of(obj: Manifest) -> Manifest:
    """Return the reference to the Job that owns a pod or a Workload; {} without one.

    Of a TrainJob's pod, that is the Job below it.
    """
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((each for each in owners if each["kind"] in TRIAL_KINDS), {})


def is_suspended(job: Manifest | None) -> bool:
    """Return whether a Job is suspended, as by Kueue; False without one."""
    spec = (job or {}).get("spec", {})
    return bool(spec.get("suspend") or spec.get("runPolicy", {}).get("suspend"))


def creators_of_pods(kind: TrialKind, job: str) -> tuple[tuple[str, str], ...]:
    """Return kind and name of the objects whose events tell why a Job has no pods, the Job first."""
    below = (("JobSet", job), ("Job", f"{job}-{NODE}-0")) if kind is TRAIN_JOB else ()
    return (kind.kind, job), *below


def pod_templates(job: Manifest) -> list[Manifest]:
    """Return the templates of a Job's pods, that of the first pod first; all request the same.

    A TrainJob has none: they are in its TrainingRuntime.
    """
    replicas = job["spec"].get("pytorchReplicaSpecs")
    return [each["template"] for each in replicas.values()] if replicas else [job["spec"]["template"]]
