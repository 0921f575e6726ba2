"""Run one trial on several machines as an Indexed Job: one pod, a worker, on each, with torchrun's variables
(PET_*), how long workers wait for each other, and their Service. Pure.

To Katib it is a Job like any other. Worker 0 is the first: its metrics and its success are the trial's, and
all others find it by its hostname, which one headless Service per namespace resolves for all trials:
https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication
"""

from k8s.objects import MANAGED_BY, Manifest
from k8s.trial_kinds import INDEX_LABEL

MULTI_LABEL = "sweepbot/multi"  # on the pods that the Service resolves
SERVICE = "sweepbot-trials"
WAIT_SECONDS = 1800  # in which all workers of a trial have to start
PORT = 29500  # torchrun's default; each pod has its own address
SUCCESS_POLICY = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}  # of a Job


def job_fields(nodes: int) -> Manifest:
    """Return the fields of the Job's spec that start and end all workers together.

    `successPolicy` is enabled by default from Kubernetes 1.31 on; older servers drop it, and the trial then
    waits for all workers. A disrupted worker fails the Job, which says so in its conditions: a replacement
    can't join a static rendezvous, and the others would keep their GPUs until a timeout.
    """
    return {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        **SUCCESS_POLICY,
        **if_disrupted("FailJob"),
    }


def if_disrupted(action: str) -> Manifest:
    """Return the fields of the Job's spec that say what follows if the cluster stops one of its pods."""
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    return {"podFailurePolicy": {"rules": [{"action": action, "onPodConditions": [disrupted]}]}}


def rendezvous(trial: str, nodes: int, processes: int) -> list[Manifest]:
    """Return torchrun's options as variables, which it reads with the prefix PET_.

    `trial`: the name of the trial, or Katib's placeholder for it. `processes`: on each machine.
    """
    rank = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX_LABEL}']"}}
    return [
        {"name": "PET_NNODES", "value": str(nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": str(processes)},
        {"name": "PET_NODE_RANK", "valueFrom": rank},
        {"name": "PET_MASTER_ADDR", "value": f"{trial}-0.{SERVICE}"},
        {"name": "PET_MASTER_PORT", "value": str(PORT)},
    ]


def patience(nodes: int) -> dict[str, str]:
    """Return torchrun's option for how long workers wait for each other; by default, 10 min.

    A node that was drained, or that an autoscaler adds, needs longer. The backend `static` reads it:
    torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py.
    """
    return {"PET_RDZV_CONF": f"timeout={WAIT_SECONDS}"} if nodes > 1 else {}


def conditions(success: str) -> Manifest:
    """Return the fields by which Katib sees the end of a Job that an operator runs.

    `success`: the type of the condition.
    """
    true = 'status.conditions.#(type=="{}")#|#(status=="True")#'
    return {"successCondition": true.format(success), "failureCondition": true.format("Failed")}


def service(namespace: str) -> Manifest:
    """Return the Service that resolves the workers of all trials in a namespace, also before they run."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": namespace, "labels": {MANAGED_BY: "sweepbot"}},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {MULTI_LABEL: "true"},
        },
    }
