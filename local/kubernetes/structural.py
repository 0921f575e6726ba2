"""Structural schemas of custom resources: the API server prunes unknown fields and checks types by them.

PyTorchJob's is that of kubeflow/trainer v1.9.3, manifests/base/crds/kubeflow.org_pytorchjobs.yaml; the errors
are those recorded with it [16-pytorchjob-422, 16-pytorchjob-type].
"""

from local.kubernetes.kinds import Cause, Kind, Object, Refused, invalid

FIELDS: dict[str, dict[str, str]] = {
    "PyTorchJob": {
        "apiVersion": "str",
        "kind": "str",
        "metadata": "V1ObjectMeta",
        "spec": "PyTorchJobSpec",
        "status": "object",
    },
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
}
REQUIRED = {
    "PyTorchJobSpec": ("pytorchReplicaSpecs",),
    "V1PodSpec": ("containers",),
    "V1Container": ("name",),
}
TYPES = {"str": "string", "int": "integer", "bool": "boolean", "float": "number"}
JSON = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
UNCHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def is_pruned(kind: Kind) -> bool:
    """Return whether the kind has a structural schema; Katib's keep what they are given."""
    return kind.name in FIELDS


def set_defaults(obj: Object) -> None:
    """Set the only default of the schema, in place."""
    if "runPolicy" in obj.get("spec", {}):
        obj["spec"]["runPolicy"].setdefault("suspend", False)


def wrong_type(kind: Kind, name: str, path: str, wanted: str, value: object) -> Refused:
    of = TYPES.get(wanted, "array" if wanted.startswith("List[") else "object")
    given = JSON[type(value)]
    text = f'Invalid value: "{given}": {path} in body must be of type {of}: "{given}"'
    return _refused(kind, name, Cause(path, text, "FieldValueTypeInvalid"))


def missing(kind: Kind, name: str, path: str) -> Refused:
    return _refused(kind, name, Cause.required(path))


def _refused(kind: Kind, name: str, cause: Cause) -> Refused:
    return invalid(kind.group_kind, kind.details(name, kind.name), [cause, Cause("<nil>", UNCHECKED)])
