"""The operator's validating webhook [kubeflow/trainer v1.9.3, pkg/webhooks/pytorch/pytorchjob_webhook.go].

An update is validated as a new object is: the real webhook compares it with itself. What only the real
operator has is refused here, in the local cluster's own words.
"""

import re
from collections.abc import Iterator

from local.kubernetes.apiserver.kinds import Object, refusal

HOOK = "validator.pytorchjob.training-operator.kubeflow.org"
NAME = r"[a-z]([-a-z0-9]*[a-z0-9])?"
NOT_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{NAME}')"
)
REPLICAS = "spec.pytorchReplicaSpecs"
TYPES = ("Master", "Worker")
CONTAINER = "pytorch"
ONLY_REAL = ("elasticPolicy", "runPolicy.managedBy", "runPolicy.schedulingPolicy")


def reviewed(job: Object) -> Object:
    """Return the PyTorchJob unchanged. Raises Refused 403."""
    spec = job.get("spec", {})
    errors = list(dict.fromkeys([*_name(job["metadata"].get("name", "")), *_replicas(spec), *_local(spec)]))
    if errors:
        why = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        raise refusal(403, f'admission webhook "{HOOK}" denied the request: {why}', "Forbidden")
    return job


def _name(name: str) -> Iterator[str]:
    """A nameless object is refused by the API server itself."""
    longest = ["must be no more than 63 characters"] if len(name) > 63 else []
    if wrong := name and [*longest, *([] if re.fullmatch(NAME, name) else [NOT_LABEL])]:
        yield f'metadata.name: Invalid value: "{name}": should match: {",".join(wrong)}'


def _replicas(spec: Object) -> Iterator[str]:
    if "pytorchReplicaSpecs" not in spec:
        yield f"{REPLICAS}: Required value: must be required"
    for type_, replica in spec.get("pytorchReplicaSpecs", {}).items():
        path, count = f"{REPLICAS}[{type_}]", replica.get("replicas")
        if type_ not in TYPES:
            yield f'{path}: Unsupported value: "{type_}": supported values: "Master", "Worker"'
        yield from _containers(f"{path}.template.spec.containers", replica)
        if type_ == "Master" and count != 1:
            yield f"{path}.replicas: Forbidden: must be 1"
        elif type_ != "Master" and count is not None and count < 1:
            yield f"{path}.replicas: Forbidden: must be at least 1"


def _containers(path: str, replica: Object) -> Iterator[str]:
    containers = replica.get("template", {}).get("spec", {}).get("containers", [])
    if not containers:
        yield f"{path}: Required value: must be specified"
    for index, container in enumerate(containers):
        if not container.get("image"):
            yield f"{path}[{index}].image: Required value: must be required"
    if CONTAINER not in [each["name"] for each in containers]:
        yield f"{path}: Required value: must have at least one container with name {CONTAINER}"


def _local(spec: Object) -> Iterator[str]:
    """Refuse what the local operator doesn't do."""
    for path in ONLY_REAL:
        inside, _, field = path.rpartition(".")
        if field in (spec.get(inside, {}) if inside else spec):
            yield f"spec.{path}: Forbidden: the local operator has no {field}"
    replicas = spec.get("pytorchReplicaSpecs", {})
    if "Master" not in replicas:
        yield f"{REPLICAS}: Forbidden: the local operator needs a Master"
    for type_, replica in replicas.items():
        if replica.get("restartPolicy") != "Never":
            why = "the local operator restarts no replica; restartPolicy must be Never"
            yield f"{REPLICAS}[{type_}].restartPolicy: Forbidden: {why}"
