"""Structural schemas of custom resources: the API server prunes unknown fields and checks values by them.

PyTorchJob's is that of kubeflow/trainer v1.9.3, manifests/base/crds/kubeflow.org_pytorchjobs.yaml; the errors
are those recorded with it [16-pytorchjob-422, 16-pytorchjob-type]. The others are those of kubeflow/trainer
v2.3.0, manifests/base/crds, and of JobSet v0.12.0; nothing of them is recorded.
"""

import re
from collections.abc import Iterator
from typing import Any

from local.kubernetes.apiserver.kinds import Cause, Kind, Object, Refused, invalid

_HEAD = {"apiVersion": "str", "kind": "str", "metadata": "V1ObjectMeta"}
FIELDS: dict[str, dict[str, str]] = {
    "PyTorchJob": {**_HEAD, "spec": "PyTorchJobSpec", "status": "object"},
    "PyTorchJobSpec": {
        "elasticPolicy": "object",
        "nprocPerNode": "str",
        "pytorchReplicaSpecs": "Dict[str, ReplicaSpec]",
        "runPolicy": "RunPolicy",
    },
    "RunPolicy": {
        "activeDeadlineSeconds": "int",
        "backoffLimit": "int",
        "cleanPodPolicy": "str",
        "managedBy": "str",
        "schedulingPolicy": "object",
        "suspend": "bool",
        "ttlSecondsAfterFinished": "int",
    },
    "ReplicaSpec": {"replicas": "int", "restartPolicy": "str", "template": "V1PodTemplateSpec"},
    "TrainJob": {**_HEAD, "spec": "TrainJobSpec", "status": "object"},
    "TrainJobSpec": {
        "activeDeadlineSeconds": "int",
        "initializer": "object",
        "managedBy": "str",
        "runtimePatches": "List[RuntimePatch]",
        "runtimeRef": "RuntimeRef",
        "suspend": "bool",
        "trainer": "Trainer",
    },
    "RuntimeRef": dict.fromkeys(("apiGroup", "kind", "name"), "str"),
    "RuntimePatch": {"manager": "str", "time": "str", "trainingRuntimeSpec": "object"},
    "Trainer": {
        "args": "List[str]",
        "command": "List[str]",
        "env": "List[V1EnvVar]",
        "image": "str",
        "numNodes": "int",
        "numProcPerNode": "int",
        "resourcesPerNode": "V1ResourceRequirements",
    },
    "TrainingRuntime": {**_HEAD, "spec": "TrainingRuntimeSpec"},
    "TrainingRuntimeSpec": {
        "mlPolicy": "MLPolicy",
        "podGroupPolicy": "object",
        "template": "JobSetTemplate",
    },
    "MLPolicy": {"numNodes": "int", **dict.fromkeys(("flux", "jax", "mpi", "torch", "xgboost"), "object")},
    "JobSetTemplate": {"metadata": "V1ObjectMeta", "spec": "JobSetSpec"},
    "JobSet": {**_HEAD, "spec": "JobSetSpec", "status": "object"},
    "JobSetSpec": {
        "coordinator": "object",
        "failurePolicy": "object",
        "managedBy": "str",
        "network": "JobSetNetwork",
        "replicatedJobs": "List[ReplicatedJob]",
        "startupPolicy": "object",
        "successPolicy": "object",
        "suspend": "bool",
        "ttlSecondsAfterFinished": "int",
        "volumeClaimPolicies": "List[object]",
    },
    "JobSetNetwork": {
        "enableDNSHostnames": "bool",
        "publishNotReadyAddresses": "bool",
        "subdomain": "str",
    },
    "ReplicatedJob": {
        "dependsOn": "List[object]",
        "groupName": "str",
        "name": "str",
        "replicas": "int",
        "template": "V1JobTemplateSpec",
    },
}
REQUIRED = {
    "PyTorchJobSpec": ("pytorchReplicaSpecs",),
    "TrainJobSpec": ("runtimeRef",),
    "RuntimeRef": ("name",),
    "RuntimePatch": ("manager",),
    "ReplicatedJob": ("name", "template"),
    "V1JobSpec": ("template",),
    "V1PodSpec": ("containers",),
    "V1Container": ("name",),
    "V1EnvVar": ("name",),
}
TYPES = {"str": "string", "int": "integer", "bool": "boolean", "float": "number"}
JSON = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
UNCHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
NAME = "[a-z]([-a-z0-9]*[a-z0-9])?"
LEAST = {"activeDeadlineSeconds": 1, "trainer.numNodes": 0}
MANAGERS = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
IMMUTABLE = ("runtimeRef", "initializer", "trainer", "activeDeadlineSeconds", "managedBy")
POLICIES = ("torch", "mpi", "jax", "xgboost", "flux")


def is_pruned(kind: Kind) -> bool:
    """Return whether the kind has a structural schema; Katib's keep what they are given."""
    return kind.name in FIELDS


def set_defaults(obj: Object) -> None:
    """Set the defaults of the schema, in place."""
    spec = obj.get("spec", {})
    if obj["kind"] == "PyTorchJob" and "runPolicy" in spec:
        spec["runPolicy"].setdefault("suspend", False)
    if obj["kind"] == "TrainJob" and "runtimeRef" in spec:
        spec.setdefault("suspend", False)
        spec.setdefault("managedBy", MANAGERS[0])
        spec["runtimeRef"].setdefault("apiGroup", "trainer.kubeflow.org")
        spec["runtimeRef"].setdefault("kind", "ClusterTrainingRuntime")
    template = spec.get("template", {}).get("spec", {}) if obj["kind"] == "TrainingRuntime" else spec
    for job in template.get("replicatedJobs", []):
        job.setdefault("groupName", "default")
        job.setdefault("replicas", 1)


def errors(obj: Object, old: Object | None = None) -> Iterator[Cause]:
    """Return what the schema's minimums and CEL rules refuse; rules of changes need the old object."""
    if obj["kind"] == "TrainingRuntime":
        yield from _runtime_errors(obj.get("spec", {}))
    if obj["kind"] == "TrainJob":
        yield from _name_errors(obj)
        yield from _job_errors(obj["spec"])
        yield from _changes(obj["spec"], old["spec"] if old else {})


def _name_errors(job: Object) -> Iterator[Cause]:
    name = job["metadata"].get("name", "")
    if not re.fullmatch(NAME, name):
        yield _rule("<nil>", job, "metadata.name must match RFC 1035 DNS label format")
    if len(name) > 63:
        yield _rule("<nil>", job, "metadata.name must be no more than 63 characters")


def _job_errors(spec: Object) -> Iterator[Cause]:
    for path, least in LEAST.items():
        value = _at(spec, path)
        if value is not None and value < least:
            text = f"spec.{path} in body should be greater than or equal to {least}"
            yield Cause.value(f"spec.{path}", value, text)
    if (processes := _at(spec, "trainer.numProcPerNode")) is not None and processes < 1:
        why = "numProcPerNode must be greater than or equal to 1"
        yield _rule("spec.trainer.numProcPerNode", processes, why)
    if (manager := spec.get("managedBy", MANAGERS[0])) not in MANAGERS:
        yield _rule("spec.managedBy", manager, f"ManagedBy must be {' or '.join(MANAGERS)} if set")


def _changes(spec: Object, was: Object) -> Iterator[Cause]:
    for field in IMMUTABLE:
        if field in was and field in spec and was[field] != spec[field]:
            yield _rule(f"spec.{field}", spec[field], "field is immutable")


def _runtime_errors(spec: Object) -> Iterator[Cause]:
    policy = spec.get("mlPolicy", {})
    if sum(each in policy for each in POLICIES) > 1:
        yield _rule("spec.mlPolicy", policy, "Only one of the policy can be configured")
    for path in ("spec", "spec.template"):
        value = spec if path == "spec" else spec.get("template")
        if value == {}:
            yield Cause.value(path, 0, f"{path} in body should have at least 1 properties")


def _at(spec: Object, path: str) -> Any:
    for key in path.split("."):
        spec = spec.get(key) if isinstance(spec, dict) else None  # type: ignore[assignment]
    return spec


def _rule(path: str, value: object, why: str) -> Cause:
    """Return the error of a CEL rule, which names the type of the value."""
    return Cause.value(path, JSON[type(value)], why)


def wrong_type(kind: Kind, name: str, path: str, wanted: str, value: object) -> Refused:
    of = TYPES.get(wanted, "array" if wanted.startswith("List[") else "object")
    given = JSON[type(value)]
    text = f'Invalid value: "{given}": {path} in body must be of type {of}: "{given}"'
    return _refused(kind, name, Cause(path, text, "FieldValueTypeInvalid"))


def missing(kind: Kind, name: str, path: str) -> Refused:
    return _refused(kind, name, Cause.required(path))


def _refused(kind: Kind, name: str, cause: Cause) -> Refused:
    return invalid(kind.group_kind, kind.details(name, kind.name), [cause, Cause("<nil>", UNCHECKED)])
