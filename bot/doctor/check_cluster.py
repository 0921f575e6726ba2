"""What the doctor asks of the cluster: the bot's rights, Katib, GPUs, and whether kubelets can be reached."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from bot.doctor import judge_cluster as judge
from bot.doctor.findings import Finding, Level, ok, warning
from k8s.client import KubernetesClient
from k8s.errors import ApiError
from k8s.gpus import is_exporter
from k8s.objects import Manifest, Ref
from k8s.rbac import BUILDS, RIGHTS, TRIALS, WATCHING

Rights = Mapping[tuple[str, str], tuple[str, ...]]

KUBELET = 5.0  # seconds for one line of a log
WEBHOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
LOOK = "kubectl apply -k deploy/doctor"  # what lets a check see beyond the bot's own namespace


async def _rights(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    return [await _granted(cluster, namespace, RIGHTS, "kubectl apply -f deploy/base/rights.yaml")]


async def _granted(cluster: KubernetesClient, namespace: str, rights: Rights, fix: str) -> Finding:
    wanted = [(*what, verb) for what, verbs in rights.items() for verb in verbs]
    allowed = await asyncio.gather(*(_may(cluster, namespace, *each) for each in wanted))
    names = [f"{verb} {resource}" for _, resource, verb in wanted]
    return judge.rights(namespace, dict(zip(names, allowed, strict=True)), fix)


async def of_trials(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    """A namespace that `namespaces:` names."""
    fix = f"kubectl -n {namespace} apply -f deploy/namespace/rights.yaml"
    return [await _granted(cluster, namespace, TRIALS, fix), *await _namespace(cluster, namespace)]


async def of_builds(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    """BUILD_NAMESPACE. Katib's label would have its webhook asked about the pods of builds."""
    fix = "kubectl apply -f deploy/builds/rights.yaml"
    found = await cluster.get(Ref("Namespace", "", namespace))
    return [await _granted(cluster, namespace, BUILDS, fix), judge.build_namespace(namespace, found)]


async def _may(cluster: KubernetesClient, namespace: str, group: str, resource: str, verb: str) -> bool:
    kind, _, sub = resource.partition("/")
    what = {"namespace": namespace, "verb": verb, "group": group, "resource": kind, "subresource": sub}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}}
    answer = await cluster.create({**review, "spec": {"resourceAttributes": what}})
    return bool(answer["status"]["allowed"])


async def _namespace(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    return [judge.namespace(namespace, await cluster.get(Ref("Namespace", "", namespace)))]


async def _katib_crds(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    found = [await cluster.get(Ref("CustomResourceDefinition", "", name)) for name in judge.CRDS]
    return [judge.katib_crds(dict(zip(judge.CRDS, found, strict=True)))]


async def _katib_deployments(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    return [judge.katib_deployments(await cluster.list("Deployment", ""))]


async def _katib_webhooks(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    return [await _katib_webhook(cluster, kind) for kind in WEBHOOKS]


async def _katib_webhook(cluster: KubernetesClient, kind: str) -> Finding:
    config = await cluster.get(Ref(kind, "", "katib.kubeflow.org"))
    service = judge.service_of(config)
    labels = f"kubernetes.io/service-name={service.get('name')}"
    slices = await cluster.list("EndpointSlice", service["namespace"], labels=labels) if service else []
    return judge.katib_webhook(kind, config, slices)


async def _device_plugins(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    return judge.device_plugins(await cluster.list("DaemonSet", ""))


async def _gpu_nodes(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    return judge.gpu_nodes(await cluster.list("Node", ""))


async def gpu_use(cluster: KubernetesClient, *, scrapes: bool) -> list[Finding]:
    """What tells how busy GPUs are; a second role lets the bot see it, and without Prometheus ask it."""
    try:
        pods, nodes = await cluster.list("Pod", ""), await cluster.list("Node", "")
    except ApiError as error:
        if error.status != 403:
            raise
        return [warning("GPU use", "unknown: not allowed to look", judge.USAGE)]
    found = judge.exporters(pods, nodes)
    if not scrapes or any(one.level is not Level.OK for one in found):
        return found
    homes = {pod["metadata"]["namespace"] for pod in pods if is_exporter(pod)}
    denied = [
        (verb, resource, home)
        for (group, resource), verbs in WATCHING.items()
        for home in (homes if resource == "pods/proxy" else ("",))
        for verb in verbs
        if not await _may(cluster, home, group, resource, verb)
    ]
    return [judge.unread(denied)] if denied else found


async def _storage_class(cluster: KubernetesClient, _namespace: str) -> list[Finding]:
    return [judge.storage_class(await cluster.list("StorageClass", ""))]


async def _kubelets(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    nodes = [n["metadata"]["name"] for n in await cluster.list("Node", "") if judge.has_usable_gpus(n)]
    troubles = await asyncio.gather(*(_kubelet(cluster, namespace, node) for node in nodes))
    well = ok("kubelet logs", f"read on {len(nodes)} GPU nodes")
    return [trouble for trouble in troubles if trouble] or [well] * bool(nodes)


async def _kubelet(cluster: KubernetesClient, namespace: str, node: str) -> Finding | None:
    """One line of any running pod's log: our own pods first, then those of the device plugin."""
    pods = await _pods_on(cluster, namespace, node)
    denied: dict[str, None] = {}
    for pod in sorted(pods, key=lambda p: _preference(p, namespace)):
        meta, container = pod["metadata"], pod["spec"]["containers"][0]["name"]
        if meta["namespace"] in denied:  # rights are by namespace
            continue
        query = {"container": container, "tailLines": 1, "limitBytes": 1024}
        try:
            async with asyncio.timeout(KUBELET):
                await cluster.raw_log(meta["namespace"], meta["name"], query)
        except TimeoutError:
            return judge.kubelet(node, f"no answer within {KUBELET:.0f} s")
        except ApiError as error:
            if error.status >= 500:
                return judge.kubelet(node, error.message)
            if error.status == 403:
                denied[meta["namespace"]] = None
                continue
            if error.absent:
                continue
        return None
    return judge.unheard(node, tuple(denied), LOOK)


async def _pods_on(cluster: KubernetesClient, namespace: str, node: str) -> list[Manifest]:
    fields = f"spec.nodeName={node},status.phase=Running"
    try:
        return await cluster.list("Pod", "", fields=fields)
    except ApiError as error:
        if error.status != 403:
            raise
        return await cluster.list("Pod", namespace, fields=fields)


def _preference(pod: Manifest, namespace: str) -> tuple[bool, bool]:
    return pod["metadata"]["namespace"] != namespace, "device-plugin" not in pod["metadata"]["name"]


CHECKS: dict[str, Callable[[KubernetesClient, str], Awaitable[list[Finding]]]] = {
    "rights": _rights,
    "namespace": _namespace,
    "Katib CRDs": _katib_crds,
    "Katib deployments": _katib_deployments,
    "Katib webhooks": _katib_webhooks,
    "GPU device plugin": _device_plugins,
    "GPU nodes": _gpu_nodes,
    "kubelet logs": _kubelets,
    "default StorageClass": _storage_class,
}
