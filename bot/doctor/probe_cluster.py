"""Probe the cluster: the bot's permissions, Katib, GPUs, storage, and kubelets."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from bot.doctor import evaluate_cluster as evaluate
from bot.doctor.findings import Finding, Level, ok, warning
from bot.text.wording import counted
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.nodes.dcgm import is_exporter
from k8s.objects import Manifest, Ref
from k8s.rbac import FOR_BUILDS, FOR_GPU_USE, FOR_RECORDS, FOR_TRIALS

Permissions = Mapping[tuple[str, str], tuple[str, ...]]

KUBELET_TIMEOUT = 5.0  # seconds for one line of a log
WEBHOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
GRANT_READ = "kubectl apply -k deploy/doctor"  # lets a check read beyond the bot's own namespace


async def _permissions(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    return [await granted(cluster, namespace, FOR_RECORDS, "kubectl apply -f deploy/base/rights.yaml")]


async def granted(
    cluster: KubernetesClient, namespace: str, wanted: Permissions, fix: str, *, name: str = ""
) -> Finding:
    """Probe permissions in a namespace, or in all for ""; with a name, those for objects of that name."""
    each = [(*resource, verb) for resource, verbs in wanted.items() for verb in verbs]
    allowed = await asyncio.gather(*(_allowed(cluster, namespace, *one, name=name) for one in each))
    names = [f"{verb} {resource}" for _, resource, verb in each]
    return evaluate.permissions(namespace, dict(zip(names, allowed, strict=True)), fix)


async def trial_namespace(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    """Probe a namespace listed in `namespaces:`."""
    fix = f"kubectl -n {namespace} apply -f deploy/namespace/rights.yaml"
    return [
        await granted(cluster, namespace, FOR_TRIALS, fix),
        *await _namespace(cluster, namespace),
    ]


async def build_namespace(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    """Probe BUILD_NAMESPACE. With Katib's label, its webhook would be called for each build pod."""
    fix = "kubectl apply -f deploy/builds/rights.yaml"
    found = await cluster.get(Ref("Namespace", "", namespace))
    return [
        await granted(cluster, namespace, FOR_BUILDS, fix),
        evaluate.build_namespace(namespace, found),
    ]


async def _allowed(
    cluster: KubernetesClient, namespace: str, group: str, resource: str, verb: str, name: str = ""
) -> bool:
    kind, _, sub = resource.partition("/")
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": kind, "subresource": sub}
    attributes |= {"name": name} if name else {}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}}
    answer = await cluster.create({**review, "spec": {"resourceAttributes": attributes}})
    return bool(answer["status"]["allowed"])


async def _namespace(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    return [evaluate.namespace(namespace, await cluster.get(Ref("Namespace", "", namespace)))]


async def _katib_crds(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    found = [await cluster.get(Ref("CustomResourceDefinition", "", name)) for name in evaluate.CRDS]
    return [evaluate.katib_crds(dict(zip(evaluate.CRDS, found, strict=True)))]


async def _katib_deployments(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    return [evaluate.katib_deployments(await cluster.list("Deployment", ""))]


async def _katib_webhooks(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    return [await _katib_webhook(cluster, kind) for kind in WEBHOOKS]


async def _katib_webhook(cluster: KubernetesClient, kind: str) -> Finding:
    config = await cluster.get(Ref(kind, "", "katib.kubeflow.org"))
    service = evaluate.service_of(config)
    labels = f"kubernetes.io/service-name={service.get('name')}"
    slices = await cluster.list("EndpointSlice", service["namespace"], labels=labels) if service else []
    return evaluate.katib_webhook(kind, config, slices)


async def _device_plugins(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    return evaluate.device_plugins(await cluster.list("DaemonSet", ""))


async def _gpu_nodes(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    return evaluate.gpu_nodes(await cluster.list("Node", ""))


async def gpu_use(cluster: KubernetesClient, *, scrapes: bool) -> list[Finding]:
    """Probe dcgm-exporter.

    Args:
        scrapes: without Prometheus, the bot scrapes exporters, and needs the permissions of deploy/usage.
    """
    try:
        pods, nodes = await cluster.list("Pod", ""), await cluster.list("Node", "")
    except ApiError as error:
        if error.status != 403:
            raise
        return [warning("GPU use", "unknown: no permission", evaluate.APPLY_USAGE)]
    found = evaluate.exporters(pods, nodes)
    if not scrapes or any(one.level is not Level.OK for one in found):
        return found
    namespaces = {pod["metadata"]["namespace"] for pod in pods if is_exporter(pod)}
    denied = [
        (verb, resource, namespace)
        for (group, resource), verbs in FOR_GPU_USE.items()
        for namespace in (namespaces if resource == "pods/proxy" else ("",))
        for verb in verbs
        if not await _allowed(cluster, namespace, group, resource, verb)
    ]
    return [evaluate.exporters_denied(denied)] if denied else found


async def _storage_class(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    return [evaluate.storage_class(await cluster.list("StorageClass", ""))]


async def _kubelets(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    nodes = [n["metadata"]["name"] for n in await cluster.list("Node", "") if evaluate.has_usable_gpus(n)]
    faults = await asyncio.gather(*(_kubelet(cluster, namespace, node) for node in nodes))
    passed = ok("kubelet logs", f"read on {counted(len(nodes), 'GPU node')}")
    return [fault for fault in faults if fault] or [passed] * bool(nodes)


async def _kubelet(cluster: KubernetesClient, namespace: str, node: str) -> Finding | None:
    """Read one line of any running pod's log; try the bot's own pods first, then dcgm-exporter's."""
    pods = await _pods_on(cluster, namespace, node)
    denied: dict[str, None] = {}
    for pod in sorted(pods, key=lambda p: _preference(p, namespace)):
        meta, container = pod["metadata"], pod["spec"]["containers"][0]["name"]
        if meta["namespace"] in denied:  # permission is granted by namespace
            continue
        query = {"container": container, "tailLines": 1, "limitBytes": 1024}
        try:
            async with asyncio.timeout(KUBELET_TIMEOUT):
                await cluster.raw_log(meta["namespace"], meta["name"], query)
        except TimeoutError:
            return evaluate.kubelet(node, f"no answer within {KUBELET_TIMEOUT:.0f} s")
        except ApiError as error:
            if error.status >= 500:
                return evaluate.kubelet(node, error.message)
            if error.status == 403:
                denied[meta["namespace"]] = None
                continue
            if error.absent:
                continue
        return None
    return evaluate.log_unreadable(node, tuple(denied), GRANT_READ)


async def _pods_on(cluster: KubernetesClient, namespace: str, node: str) -> list[Manifest]:
    fields = f"spec.nodeName={node},status.phase=Running"
    try:
        return await cluster.list("Pod", "", fields=fields)
    except ApiError as error:
        if error.status != 403:
            raise
        return await cluster.list("Pod", namespace, fields=fields)


def _preference(pod: Manifest, namespace: str) -> tuple[bool, bool]:
    return pod["metadata"]["namespace"] != namespace, not is_exporter(pod)


CHECKS: dict[str, Callable[[KubernetesClient, str], Awaitable[list[Finding]]]] = {
    "RBAC": _permissions,
    "namespace": _namespace,
    "Katib CRDs": _katib_crds,
    "Katib deployments": _katib_deployments,
    "Katib webhooks": _katib_webhooks,
    "GPU device plugin": _device_plugins,
    "GPU nodes": _gpu_nodes,
    "kubelet logs": _kubelets,
    "default StorageClass": _storage_class,
}
