"""Know where the API server serves each kind that Sweepbot reads or writes."""

from urllib.parse import quote

# kind -> apiVersion, and its name in a path; of Kueue's, k8s.kueue_version chooses the served version
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
    "WorkloadPriorityClass": ("kueue.x-k8s.io/v1beta1", "workloadpriorityclasses"),
    "Node": ("v1", "nodes"),
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


def object_path(kind: str, namespace: str, name: str = "", subresource: str = "") -> str:
    version, plural = KINDS[kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    scope = f"namespaces/{namespace}" if namespace else ""  # "": all namespaces, or a cluster-scoped kind
    return "/".join(filter(None, (root, scope, plural, quote(name, safe=""), subresource)))
