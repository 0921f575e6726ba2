"""Build the Katib Experiment (v1beta1) of a sweep: objective, algorithm, counts, and the Job or PyTorchJob of
a trial, with its labels, its retries, and how long an ended one stays.

Katib's behavior that shapes it: "Running" means that a Job exists, not that it runs; a deleted trial or Job
is created again; metrics are reported once, after the training finished; a finished experiment leaves its
running trials on their GPUs.
"""

from collections.abc import Mapping
from copy import deepcopy

from k8s.katib import train_job
from k8s.katib.multi_node import MULTI_LABEL, conditions, if_disrupted, job_fields
from k8s.katib.spec import ExperimentSpec
from k8s.katib.training import metrics_collector_spec
from k8s.katib.trial_pod import trial_pod
from k8s.objects import MANAGED_BY, SWEEP_LABEL, WITHOUT_PROXY, Manifest
from k8s.trial_kinds import INDEX_LABEL, PYTORCH_JOB, TRAIN_JOB, TrialKind

# Katib creates a Job again if it is deleted before its metrics arrived, so Jobs are kept for days.
JOB_TTL = 7 * 24 * 3600
PYTORCH_MASTER = {"training.kubeflow.org/job-role": "master"}  # labels of the first pod of a PyTorchJob


def experiment(spec: ExperimentSpec) -> Manifest:
    labels, stopping = {**_labels(spec), **spec.labels}, spec.early_stopping
    objective: Manifest = {
        "type": "maximize" if spec.maximize else "minimize",
        "objectiveMetricName": spec.metric,
    }
    if spec.target is not None:
        objective["goal"] = spec.target
    if spec.additional:
        objective["additionalMetricNames"] = list(spec.additional)
    if spec.strategies:
        objective["metricStrategies"] = _listed(spec.strategies)
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {
            "name": spec.name,
            "namespace": spec.namespace,
            "labels": labels,
            "annotations": spec.annotations,
        },
        "spec": {
            "objective": objective,
            "algorithm": _algorithm(spec.algorithm, spec.settings),
            "parallelTrialCount": spec.parallel,
            "maxTrialCount": spec.max_trials,
            "maxFailedTrialCount": spec.max_failed,
            # Keeps the suggestion service after an end: needed to open the gate, to pause, and to extend.
            "resumePolicy": "LongRunning",
            "parameters": [
                {"name": p.name, "parameterType": p.type, "feasibleSpace": p.space} for p in spec.parameters
            ],
            "metricsCollectorSpec": metrics_collector_spec(spec.collector),
            **({} if stopping is None else {"earlyStopping": _algorithm("medianstop", stopping)}),
            "trialTemplate": _trial_template(spec),
        },
    }


def training_runtime(spec: ExperimentSpec) -> Manifest | None:
    """Return the TrainingRuntime of the trials if they are TrainJobs; `train_job.owned` completes it."""
    if spec.trial_kind is not TRAIN_JOB:
        return None
    return train_job.runtime(
        spec.name, spec.namespace, _pod_template(spec), labels=_labels(spec), ttl=JOB_TTL
    )


def _algorithm(name: str, settings: Mapping[str, str]) -> Manifest:
    return {"algorithmName": name} | ({"algorithmSettings": _listed(settings)} if settings else {})


def _listed(values: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _trial_template(spec: ExperimentSpec) -> Manifest:
    meta, kind = [{"name": "trialName", "reference": "${trialSpec.Name}"}], spec.trial_kind
    return {
        "retain": True,
        "primaryContainerName": kind.container,
        **(_of_first_worker(kind) if spec.nodes > 1 else {}),
        "trialParameters": [{"name": p.name, "reference": p.name} for p in spec.parameters] + meta,
        "trialSpec": {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            # Katib copies the experiment's labels to trials and pods, but never to the Job.
            "metadata": {"labels": _labels(spec) | spec.job_labels},
            "spec": _job_spec(spec),
        },
    }


def _of_first_worker(kind: TrialKind) -> Manifest:
    """Return the fields without which each worker would report metrics as the trial."""
    if kind is PYTORCH_JOB:
        return {"primaryPodLabels": PYTORCH_MASTER, **conditions("Succeeded")}
    if kind is TRAIN_JOB:
        return {"primaryPodLabels": train_job.FIRST_WORKER, **conditions("Complete")}
    return {"primaryPodLabels": {INDEX_LABEL: "0"}}


def _job_spec(spec: ExperimentSpec) -> Manifest:
    template = _pod_template(spec)
    if spec.trial_kind is TRAIN_JOB:
        container = template["spec"]["containers"][0]
        return train_job.job_spec(spec.name, spec.nodes, spec.processes, container)
    if spec.trial_kind is PYTORCH_JOB:
        return _pytorch_job_spec(spec.nodes, spec.processes, template)
    return {
        # The default of 6 retries would hide a crash for minutes.
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": JOB_TTL,
        # Otherwise a drained node would count as a failed trial.
        **(job_fields(spec.nodes) if spec.nodes > 1 else if_disrupted("Ignore")),
        "template": template,
    }


def _pod_template(spec: ExperimentSpec) -> Manifest:
    several = {MULTI_LABEL: "true"} if spec.nodes > 1 else {}
    # Katib's webhook also labels pods, unless it is down and its failure policy ignores that.
    return {"metadata": {"labels": _labels(spec) | several | WITHOUT_PROXY}, "spec": trial_pod(spec)}


def _labels(spec: ExperimentSpec) -> dict[str, str]:
    return {MANAGED_BY: "sweepbot", SWEEP_LABEL: spec.sweep}


def _pytorch_job_spec(nodes: int, processes: int, template: Manifest) -> Manifest:
    """Return the spec of a PyTorchJob of Kubeflow's Training Operator v1.

    The operator creates the pods and a Service for each, and sets torchrun's options as variables (PET_*).
    The first pod is the master: its metrics and its success are the trial's. Sources: kubeflow/trainer,
    branch release-1.9, pkg/controller.v1/common/job.go and pkg/controller.v1/pytorch.

    A backoffLimit isn't set: at the first failure, the operator would delete all pods, also the failed one
    with its log. Without it, restartPolicy Never fails the PyTorchJob, and cleanPodPolicy Running deletes
    the pods that still run. Its default, None, leaves them on their GPUs.

    Args:
        processes: on each machine.
        template: of each pod; the operator sets its restartPolicy.
    """
    return {
        "nprocPerNode": str(processes),
        "runPolicy": {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": JOB_TTL},
        "pytorchReplicaSpecs": {
            "Master": _replicas(1, template),
            "Worker": _replicas(nodes - 1, deepcopy(template)),  # each can then be changed alone
        },
    }


def _replicas(count: int, template: Manifest) -> Manifest:
    return {"replicas": count, "restartPolicy": "Never", "template": template}
