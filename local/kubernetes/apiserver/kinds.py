"""The kinds of this cluster, and the API server's errors with their exact messages."""

import marshal
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

Object = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    name: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    has_status: bool = False  # and a /status of its own, so that the main resource does not write it
    has_generation: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Return its name in 403, 404, and 409 errors: `jobs.batch`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_kind(self) -> str:
        """Return its name in 422 errors: `Job.batch`, `Pod`."""
        return f"{self.name}.{self.group}" if self.group else self.name

    @property
    def is_custom(self) -> bool:
        return self.group in ("kubeflow.org", KUEUE, TRAINER_GROUP, JOBSET_GROUP)

    def details(self, name: str, kind: str = "") -> Object:
        given = {"name": name, "group": self.group, "kind": kind or self.plural}
        return {key: value for key, value in given.items() if value}


def _katib(name: str) -> Kind:
    return Kind(name, f"{name.lower()}s", "kubeflow.org", "v1beta1", has_status=True, has_generation=True)


def _kueue(name: str) -> Kind:
    plural = f"{name.lower()}es" if name.endswith("s") else f"{name.lower()}s"
    namespaced = name in {"LocalQueue", "Workload"}
    return Kind(name, plural, KUEUE, "v1beta1", namespaced, has_status=True, has_generation=True)


KUEUE = "kueue.x-k8s.io"
# Served where Kueue is installed.
QUEUES = (
    "LocalQueue",
    "ClusterQueue",
    "Cohort",
    "Workload",
    "WorkloadPriorityClass",
)
TRAINING = ("PyTorchJob",)  # served where the Training Operator is installed
TRAINER_GROUP, JOBSET_GROUP = "trainer.kubeflow.org", "jobset.x-k8s.io"
TRAINER = ("TrainJob", "TrainingRuntime", "JobSet")  # served where Kubeflow Trainer 2 is installed
DEVICES = "resource.k8s.io"
RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
_ALL = (
    Kind("Namespace", "namespaces", namespaced=False, has_status=True),
    Kind("Node", "nodes", namespaced=False, has_status=True),
    Kind("Pod", "pods", has_status=True, has_generation=True),
    Kind("ConfigMap", "configmaps"),
    Kind("Secret", "secrets"),
    Kind("ResourceQuota", "resourcequotas"),
    Kind("Event", "events"),
    Kind("ServiceAccount", "serviceaccounts"),
    Kind("Role", "roles", RBAC),
    Kind("RoleBinding", "rolebindings", RBAC),
    Kind("ClusterRole", "clusterroles", RBAC, namespaced=False),
    Kind("ClusterRoleBinding", "clusterrolebindings", RBAC, namespaced=False),
    Kind("SelfSubjectAccessReview", "selfsubjectaccessreviews", "authorization.k8s.io", namespaced=False),
    Kind("PriorityClass", "priorityclasses", "scheduling.k8s.io", namespaced=False),
    Kind("RuntimeClass", "runtimeclasses", "node.k8s.io", namespaced=False),
    Kind("StorageClass", "storageclasses", "storage.k8s.io", namespaced=False),
    Kind("DaemonSet", "daemonsets", "apps"),
    *(
        Kind(name, f"{name.lower()}s", "apps", has_status=True, has_generation=True)
        for name in ("Deployment", "ReplicaSet")
    ),
    Kind("PodDisruptionBudget", "poddisruptionbudgets", "policy"),
    Kind("HorizontalPodAutoscaler", "horizontalpodautoscalers", "autoscaling", "v2"),
    Kind("EndpointSlice", "endpointslices", "discovery.k8s.io"),
    Kind("CustomResourceDefinition", "customresourcedefinitions", "apiextensions.k8s.io", namespaced=False),
    *(
        Kind(
            f"{name}WebhookConfiguration", f"{name.lower()}webhookconfigurations", ADMISSION, namespaced=False
        )
        for name in ("Validating", "Mutating")
    ),
    Kind("StatefulSet", "statefulsets", "apps", has_status=True, has_generation=True),
    Kind("PersistentVolumeClaim", "persistentvolumeclaims", has_status=True),
    Kind("Service", "services"),
    Kind("Ingress", "ingresses", "networking.k8s.io"),
    Kind("IngressClass", "ingressclasses", "networking.k8s.io", namespaced=False),
    Kind("DeviceClass", "deviceclasses", DEVICES, namespaced=False, has_generation=True),
    Kind("ResourceSlice", "resourceslices", DEVICES, namespaced=False, has_generation=True),
    Kind("ResourceClaim", "resourceclaims", DEVICES, has_status=True),
    Kind("ResourceClaimTemplate", "resourceclaimtemplates", DEVICES),
    Kind("Job", "jobs", "batch", has_status=True, has_generation=True),
    *map(_katib, ("Experiment", "Trial", "Suggestion")),
    Kind("PyTorchJob", "pytorchjobs", "kubeflow.org", has_status=True, has_generation=True),
    Kind("TrainJob", "trainjobs", TRAINER_GROUP, "v1alpha1", has_status=True, has_generation=True),
    Kind("TrainingRuntime", "trainingruntimes", TRAINER_GROUP, "v1alpha1", has_generation=True),
    Kind("JobSet", "jobsets", JOBSET_GROUP, "v1alpha2", has_status=True, has_generation=True),
    *map(_kueue, QUEUES),
)
KINDS = {kind.name: kind for kind in _ALL}


class Refused(Exception):  # noqa: N818 - reads as a sentence where it is raised
    """An error response: HTTP code, and a Status or plain text."""

    def __init__(self, code: int, body: Object | str) -> None:
        super().__init__(body if isinstance(body, str) else body["message"])
        self.code = code
        self.body = body


def refusal(code: int, message: str, reason: str = "", details: Object | None = None) -> Refused:
    """Return a Status; webhook denials and some internal errors have no reason."""
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body |= {"message": message, "reason": reason, "details": details, "code": code}
    return Refused(code, {key: value for key, value in body.items() if value not in ("", None)})


def bad_request(message: str) -> Refused:
    return refusal(400, message, "BadRequest")


def not_found(kind: Kind, name: str) -> Refused:
    return refusal(404, f'{kind.resource} "{name}" not found', "NotFound", kind.details(name))


def conflict(kind: Kind, name: str) -> Refused:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    text = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return refusal(409, text, "Conflict", kind.details(name))


def other_uid(kind: Kind, name: str, wanted: str, real: str) -> Refused:
    """Return the 409 of a uid precondition, the only one that names the Kind [02-delete-precond-uid]."""
    why = f"the UID in the precondition ({wanted}) does not match the UID in record ({real}). "
    why += "The object might have been deleted and then recreated"
    text = f'Operation cannot be fulfilled on {kind.group_kind} "{name}": {why}'
    return refusal(409, text, "Conflict", kind.details(name, kind.name))


def already_exists(kind: Kind, there: Object) -> Refused:
    meta = there["metadata"]
    terminating = "object is being deleted: " if "deletionTimestamp" in meta else ""
    text = f'{terminating}{kind.resource} "{meta["name"]}" already exists'
    return refusal(409, text, "AlreadyExists", kind.details(meta["name"]))


@dataclass(frozen=True)
class Cause:
    """An error of one field of an object."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    @classmethod
    def value(cls, field: str, value: object, why: str) -> "Cause":
        shown = f'"{value}"' if isinstance(value, str) else value
        return cls(field, f"Invalid value: {shown}: {why}")

    @classmethod
    def required(cls, field: str, why: str = "") -> "Cause":
        return cls(field, f"Required value: {why}" if why else "Required value", "FieldValueRequired")


def invalid(group_kind: str, details: Object, causes: Sequence[Cause]) -> Refused:
    """Return a 422: its message has distinct causes, its details all of them [03-job-422-name-64]."""
    messages = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    listed = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    message = f'{group_kind} "{details.get("name", "")}" is invalid: {text}'
    return refusal(422, message, "Invalid", {**details, "causes": listed})


def clone(value: T) -> T:
    """Return a deep copy of JSON. marshal copies it six times as fast as a recursive function."""
    copy: T = marshal.loads(marshal.dumps(value))  # type: ignore[arg-type]  # noqa: S302 - its own bytes
    return copy


def timestamp(at: datetime | None = None) -> str:
    return (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def suffix(length: int = 5) -> str:
    """Return the random suffix of a generated name, without vowels, 0, 1, and 3, as in apimachinery."""
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(length))
