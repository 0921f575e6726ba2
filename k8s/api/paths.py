"""Know where the API server serves each kind that Sweepbot reads or writes, and in which version."""

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from k8s.api.errors import ApiError
from k8s.objects import Manifest

# kind -> apiVersion, and its name in a path
KINDS = {
    "ConfigMap": ("v1", "configmaps"),
    "Pod": ("v1", "pods"),
    "Event": ("v1", "events"),
    "Job": ("batch/v1", "jobs"),
    "PyTorchJob": ("kubeflow.org/v1", "pytorchjobs"),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", "trainjobs"),
    "TrainingRuntime": ("trainer.kubeflow.org/v1alpha1", "trainingruntimes"),
    "Experiment": ("kubeflow.org/v1beta1", "experiments"),
    "Trial": ("kubeflow.org/v1beta1", "trials"),
    "Suggestion": ("kubeflow.org/v1beta1", "suggestions"),
    "Workload": ("kueue.x-k8s.io/v1beta1", "workloads"),
    "LocalQueue": ("kueue.x-k8s.io/v1beta1", "localqueues"),
    "ClusterQueue": ("kueue.x-k8s.io/v1beta1", "clusterqueues"),
    "Cohort": ("kueue.x-k8s.io/v1beta1", "cohorts"),
    "WorkloadPriorityClass": ("kueue.x-k8s.io/v1beta1", "workloadpriorityclasses"),
    "Node": ("v1", "nodes"),
    "ResourceSlice": ("resource.k8s.io/v1", "resourceslices"),  # from Kubernetes 1.34 on
    "ResourceClaim": ("resource.k8s.io/v1", "resourceclaims"),
    "ResourceClaimTemplate": ("resource.k8s.io/v1", "resourceclaimtemplates"),
    "DeviceClass": ("resource.k8s.io/v1", "deviceclasses"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "Secret": ("v1", "secrets"),
    "Service": ("v1", "services"),
    "Ingress": ("networking.k8s.io/v1", "ingresses"),
    "PodMetrics": ("metrics.k8s.io/v1beta1", "pods"),  # where metrics-server is installed
    # Only the doctor reads these; most are cluster-scoped.
    "SelfSubjectAccessReview": ("authorization.k8s.io/v1", "selfsubjectaccessreviews"),
    "Namespace": ("v1", "namespaces"),
    "PriorityClass": ("scheduling.k8s.io/v1", "priorityclasses"),
    "RuntimeClass": ("node.k8s.io/v1", "runtimeclasses"),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses"),
    "IngressClass": ("networking.k8s.io/v1", "ingressclasses"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "Deployment": ("apps/v1", "deployments"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "horizontalpodautoscalers"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "ScaledObject": ("keda.sh/v1alpha1", "scaledobjects"),
    "EndpointSlice": ("discovery.k8s.io/v1", "endpointslices"),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "ValidatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
}

# API group -> its versions; the first that is served is used in place of the one above (ServedVersions).
SERVED = {"kueue.x-k8s.io": ("v1beta2", "v1beta1")}
WRITTEN = {api.partition("/")[0]: api.partition("/")[2] for api, _ in KINDS.values()}  # in paths, by group


def object_path(kind: str, namespace: str, name: str = "", subresource: str = "") -> str:
    version, plural = KINDS[kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    scope = f"namespaces/{namespace}" if namespace else ""  # "": all namespaces, or a cluster-scoped kind
    return "/".join(filter(None, (root, scope, plural, quote(name, safe=""), subresource)))


class ServedVersions:
    """Ask the cluster at the first request to a group, and again after a 404: an upgrade can remove one.

    Of Kueue, for example, 0.14 serves v1beta1; 0.15 to 0.19 serve v1beta2, too, with v1beta1 deprecated, and
    some of them reject patches of admitted Workloads through v1beta1 (kueue#10594). What is read and patched
    must have the same names in all versions that SERVED lists.

    Args:
        get: GETs a path and returns the object. Raises ApiError and UnreachableError.
    """

    def __init__(self, get: Callable[[str], Awaitable[Manifest]]) -> None:
        self._get, self._served = get, dict[str, str]()

    async def path(self, path: str) -> str:
        """Return the path in the version that is served. Raises ApiError and UnreachableError."""
        group = _group(path)
        if not path.startswith(f"/apis/{group}/{WRITTEN.get(group)}/") or group not in SERVED:
            return path
        if group not in self._served and (version := await self._discovered(group)):
            self._served[group] = version
        return path.replace(WRITTEN[group], self._served.get(group, WRITTEN[group]), 1)

    def forget(self, path: str) -> None:
        """Discover again at the next request, if the path is one of such a group."""
        self._served.pop(_group(path), None)

    async def _discovered(self, group: str) -> str:
        """Return the version; "" if the API isn't installed, or discovery isn't allowed."""
        try:
            found = await self._get(f"/apis/{group}")
        except ApiError as error:
            if error.outage or error.throttled:
                raise
            return ""
        served = {each.get("version") for each in found.get("versions") or ()}
        return next((version for version in SERVED[group] if version in served), "")


def _group(path: str) -> str:
    return path.removeprefix("/apis/").partition("/")[0]
