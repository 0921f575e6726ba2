"""Run one trial on several machines as a TrainJob of Kubeflow Trainer 2. Pure.

Trainer makes a JobSet of a TrainJob and the TrainingRuntime that it refers to, and JobSet makes an Indexed
Job and a headless Service of that. Trainer sets torchrun's options as variables (PET_*). The first pod's
metrics and success are the trial's.

A TrainJob can't turn off what a stock runtime does: up to six retries of pods that restart in place, which
Katib's metrics collector doesn't survive. So each experiment has a TrainingRuntime of its own, with the pod.
The TrainJob has what Katib or the build fills in: command, variables, and image. Sources: kubeflow/trainer
v2.0 to v2.3, pkg/runtime and pkg/webhooks; kubernetes-sigs/jobset, pkg/controllers and pkg/webhooks.
"""

from k8s.katib.multi_node import SUCCESS_POLICY
from k8s.objects import Manifest
from k8s.trial_kinds import INDEX_LABEL, NODE, TRAIN_JOB

GROUP = "trainer.kubeflow.org"
RUNTIME = "TrainingRuntime"
FIRST_WORKER = {"jobset.sigs.k8s.io/replicatedjob-name": NODE, INDEX_LABEL: "0"}  # labels of the first pod
# Trainer sets these, and rejects a TrainJob that does.
RESERVED = {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
MAX_VARIABLES = 128  # of a TrainJob: maxItems of spec.trainer.env in its CRD
FROM_TRAIN_JOB = ("image", "command", "args", "env")


def job_spec(runtime_name: str, nodes: int, processes: int, container: Manifest) -> Manifest:
    """Return the spec of a TrainJob.

    Args:
        processes: on each machine.
        container: of the training; what is in FROM_TRAIN_JOB replaces the runtime's.
    """
    env = [each for each in container["env"] if each["name"] not in RESERVED]
    return {
        "runtimeRef": {"apiGroup": GROUP, "kind": RUNTIME, "name": runtime_name},
        "trainer": {
            **{key: container[key] for key in FROM_TRAIN_JOB},
            "env": env,
            "numNodes": nodes,
            "numProcPerNode": processes,
        },
    }


def runtime(name: str, namespace: str, template: Manifest, *, labels: dict[str, str], ttl: int) -> Manifest:
    """Return the TrainingRuntime of an experiment, without its owner.

    With a backoffLimit of 0 and no failurePolicy, JobSet fails with the first pod that fails or is disrupted,
    and deletes the others: a new pod can't join a static rendezvous.

    Args:
        name: that of the experiment.
        template: of each pod.
        ttl: seconds from its end until a Job is deleted. The JobSet above it stays: Trainer v2.1 would create
            it again.
    """
    pod = template["spec"]
    containers = [{k: v for k, v in c.items() if k not in FROM_TRAIN_JOB} for c in pod["containers"]]
    job = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": ttl,
        "completionMode": "Indexed",
        **SUCCESS_POLICY,
        "template": {**template, "spec": {**pod, "containers": containers}},
    }
    trainer = {"labels": {f"{GROUP}/trainjob-ancestor-step": "trainer"}}
    jobs = [{"name": NODE, "replicas": 1, "template": {"metadata": trainer, "spec": job}}]
    return {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": RUNTIME,
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},  # the TrainJob sets the numbers
            "template": {"spec": {"replicatedJobs": jobs}},
        },
    }


def owned(runtime_: Manifest, experiment: Manifest, uid: str) -> Manifest:
    """Return the runtime of this experiment, with which Kubernetes deletes it.

    Before v2.3, Trainer keeps a runtime until the TrainJobs that refer to it are deleted, too.
    """
    name = experiment["metadata"]["name"]
    owner = {key: experiment[key] for key in ("apiVersion", "kind")} | {"name": name, "uid": uid}
    head = {**runtime_["metadata"], "name": name, "ownerReferences": [owner]}
    return {**runtime_, "metadata": head}
