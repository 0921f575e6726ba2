"""Run one trial on several machines as a PyTorchJob of Kubeflow's Training Operator v1. Pure.

The operator creates the pods and a Service for each, and sets torchrun's options as variables (PET_*). The
first pod is the master: its metrics and its success are the trial's. Sources: kubeflow/trainer, branch
release-1.9, pkg/controller.v1/common/job.go and pkg/controller.v1/pytorch.
"""

from copy import deepcopy

from k8s.objects import Manifest

MASTER = {"training.kubeflow.org/job-role": "master"}  # labels of the first pod


def job_spec(nodes: int, processes: int, template: Manifest, *, ttl: int) -> Manifest:
    """Return the spec of a PyTorchJob.

    A backoffLimit isn't set: at the first failure, the operator would delete all pods, also the failed one
    with its log. Without it, restartPolicy Never fails the PyTorchJob, and cleanPodPolicy Running deletes
    the pods that still run. Its default, None, leaves them on their GPUs.

    Args:
        processes: on each machine.
        template: of each pod; the operator sets its restartPolicy.
        ttl: seconds from its end until it is deleted.
    """
    return {
        "nprocPerNode": str(processes),
        "runPolicy": {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": ttl},
        "pytorchReplicaSpecs": {
            "Master": _replicas(1, template),
            "Worker": _replicas(nodes - 1, deepcopy(template)),  # each can then be changed alone
        },
    }


def _replicas(count: int, template: Manifest) -> Manifest:
    return {"replicas": count, "restartPolicy": "Never", "template": template}
