"""Check the GPUs: device plugins, nodes, exporters, and kubelets, through which logs are read.

Covers faults of real clusters: GPUs that are no longer allocatable, and an unreachable kubelet.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from bot.core.finding import Finding, Level, broken, ok, warning
from bot.operate.check_cluster import GRANT_READ, ClusterCheck, allowed, listed_unless, of_lists
from bot.text.wording import counted, listed
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.nodes.dcgm import is_exporter
from k8s.nodes.gpus import GPU_RESOURCE, GpuNode, read_node
from k8s.nodes.listed import list_nodes
from k8s.nodes.machines import Machine
from k8s.objects import GPU, Manifest
from k8s.rbac import FOR_DEVICES, FOR_GPU_USE

DEVICE_PLUGIN = re.compile(r"(nvidia|amd|rocm|gpu|habana).*device-plugin")
APPLY_USAGE = "kubectl apply -k deploy/usage"
PLUGIN, NODES, USE, LOGS = "GPU device plugin", "GPU nodes", "GPU use", "kubelet logs"  # checks
KUBELET_TIMEOUT = 5.0  # seconds for one line of a log


def device_plugins(
    daemonsets: Iterable[Manifest], nodes: Iterable[Manifest], *, scaled: bool = False
) -> list[Finding]:
    """Count ready pods. A GPU-sharing helper that matches no node is ignored if another plugin matches.

    Nodes can have GPUs without a known DaemonSet: the plugin runs on the host, or has another name.
    `scaled`: an autoscaler can add them, and there can be none now.
    """
    plugins = [each for each in daemonsets if _is_plugin(each)]
    placed = [each for each in plugins if each.get("status", {}).get("desiredNumberScheduled")]
    able = [] if placed else [node for node in nodes if has_usable_gpus(node)]
    if able:
        return [ok(PLUGIN, f"no known DaemonSet, but {counted(len(able), 'node')} with allocatable GPUs")]
    if scaled and not placed:
        return []  # gpu_nodes() reports it
    if not plugins:
        return [broken(PLUGIN, "not found; nodes have no allocatable GPUs", "install one: docs/install.md")]
    if not placed:
        names = listed(each["metadata"]["name"] for each in plugins)
        look = f"kubectl -n {plugins[0]['metadata']['namespace']} describe daemonsets"
        what = f"{names} matches no node; compare its node selector with the node labels"
        return [broken(PLUGIN, what, look)]
    return [_device_plugin(each["metadata"], each["status"]) for each in placed]


def _device_plugin(meta: Manifest, status: Manifest) -> Finding:
    ready, wanted = status.get("numberReady", 0), status["desiredNumberScheduled"]
    if ready < wanted:
        look = f"kubectl -n {meta['namespace']} describe daemonset {meta['name']}"
        return broken(PLUGIN, f"{meta['name']} ready on {ready}/{wanted} nodes", look)
    return ok(PLUGIN, f"{meta['name']} {ready}/{wanted}")


def _is_plugin(daemonset: Manifest) -> bool:
    containers = daemonset["spec"]["template"]["spec"].get("containers", [])
    names = [daemonset["metadata"]["name"], *(each.get("image", "") for each in containers)]
    return any(DEVICE_PLUGIN.search(name) for name in names)


def gpu_nodes(nodes: Iterable[Manifest], *, scaled: bool = False) -> list[Finding]:
    """Return one finding if all GPU nodes are healthy, otherwise one for each that isn't.

    A MIG slice counts as one GPU.
    """
    found = [each for node in nodes if (each := read_node(node))]
    if not found and scaled:
        return [ok(NODES, "none now; an autoscaler adds those of pools:")]
    if not found:
        fix = "kubectl describe nodes | grep -A9 Capacity  # autoscaled ones: pools: in docs/machines.md"
        return [broken(NODES, f"no node has {GPU}", fix)]
    faults = [fault for node in found if (fault := _node_fault(node))]
    if not any(map(_usable, found)):
        return [replace(fault, level=Level.BROKEN) for fault in faults]
    total = sum(node.allocatable for node in found)
    return faults or [ok(NODES, f"{counted(total, 'GPU')} on {counted(len(found), 'node')}")]


def _node_fault(node: GpuNode) -> Finding | None:
    name = node.node
    if not node.ready:
        return warning(NODES, f"{name}: not ready", f"kubectl describe node {name}")
    if node.cordoned:
        return warning(NODES, f"{name}: cordoned", f"kubectl uncordon {name}")
    if missing := node.physical - node.allocatable:
        fix = f"on {name}: nvidia-smi; dmesg | grep -i xid; then reset the GPU or reboot"
        return warning(NODES, f"{name}: {missing} of {node.physical} GPUs not allocatable", fix)
    return None


def has_usable_gpus(node: Manifest) -> bool:
    found = read_node(node)
    return found is not None and _usable(found)


def _usable(node: GpuNode) -> bool:
    return node.ready and not node.cordoned and node.allocatable > 0


async def gpu_use(cluster: KubernetesClient, *, scrapes: bool) -> list[Finding]:
    """Probe dcgm-exporter.

    Args:
        scrapes: without Prometheus, the bot scrapes exporters, and needs the permissions of deploy/usage.
    """
    pods, nodes = await listed_unless(403, cluster, "Pod"), await listed_unless(403, cluster, "Node")
    if pods is None or nodes is None:
        return [warning(USE, "unknown: no permission", APPLY_USAGE)]
    found = exporters(pods, nodes)
    if not scrapes or any(one.level is not Level.OK for one in found):
        return found
    namespaces = {pod["metadata"]["namespace"] for pod in pods if is_exporter(pod)}
    denied = [
        (verb, resource, namespace)
        for (group, resource), verbs in FOR_GPU_USE.items()
        for namespace in (namespaces if resource == "pods/proxy" else ("",))
        for verb in verbs
        if (group, resource) not in FOR_DEVICES  # device_classes() reports them
        and not await allowed(cluster, namespace, group, resource, verb)
    ]
    return [_exporters_denied(denied)] if denied else found


def exporters(pods: Iterable[Manifest], nodes: Iterable[Manifest]) -> list[Finding]:
    """Check that a dcgm-exporter runs on every node with GPUs."""
    covered = {pod["spec"].get("nodeName") for pod in pods if is_exporter(pod)}
    wanted = [node["metadata"]["name"] for node in nodes if has_usable_gpus(node)]
    if not wanted:
        return []  # gpu_nodes() reports it
    fix = "kubectl get pods -A -o wide | grep dcgm-exporter  # install it: docs/install.md"
    if missing := [name for name in wanted if name not in covered]:
        return [warning(USE, f"no dcgm-exporter on {listed(missing)}; GPU use there is unknown", fix)]
    return [ok(USE, f"dcgm-exporter on {counted(len(wanted), 'node')}")]


def _exporters_denied(denied: Sequence[tuple[str, str, str]]) -> Finding:
    """Report missing permissions: verb, resource, and namespace ("" for all) of each."""
    each = [f"{verb} {resource} in {namespace or 'all namespaces'}" for verb, resource, namespace in denied]
    elsewhere = sorted({namespace for _, _, namespace in denied} - {"", "dcgm-exporter"})
    move = f" (apply the Role and RoleBinding of deploy/usage in {listed(elsewhere)})" if elsewhere else ""
    return warning(USE, f"missing permission: {listed(each)}; GPU use is unknown{move}", APPLY_USAGE)


async def kubelets(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    nodes = [n["metadata"]["name"] for n in await list_nodes(cluster) if has_usable_gpus(n)]
    faults = await asyncio.gather(*(_kubelet(cluster, namespace, node) for node in nodes))
    passed = ok(LOGS, f"read on {counted(len(nodes), 'GPU node')}")
    return [fault for fault in faults if fault] or [passed] * bool(nodes)


async def _kubelet(cluster: KubernetesClient, namespace: str, node: str) -> Finding | None:
    """Read one line of any running pod's log; try the bot's own pods first, then dcgm-exporter's."""
    pods = await _pods_on(cluster, namespace, node)
    denied: dict[str, None] = {}
    for pod in sorted(
        pods, key=lambda pod: (pod["metadata"]["namespace"] != namespace, not is_exporter(pod))
    ):
        meta, container = pod["metadata"], pod["spec"]["containers"][0]["name"]
        if meta["namespace"] in denied:  # permission is granted by namespace
            continue
        query = {"container": container, "tailLines": 1, "limitBytes": 1024}
        try:
            async with asyncio.timeout(KUBELET_TIMEOUT):
                await cluster.raw_log(meta["namespace"], meta["name"], query)
        except TimeoutError:
            return unreachable_kubelet(node, f"no answer within {KUBELET_TIMEOUT:.0f} s")
        except ApiError as error:
            if error.status >= 500:
                return unreachable_kubelet(node, error.message)
            if error.status == 403:
                denied[meta["namespace"]] = None
                continue
            if error.absent:
                continue
        return None
    return _log_unreadable(node, tuple(denied))


async def _pods_on(cluster: KubernetesClient, namespace: str, node: str) -> list[Manifest]:
    fields = f"spec.nodeName={node},status.phase=Running"
    try:
        return await cluster.list("Pod", "", fields=fields)
    except ApiError as error:
        if error.status != 403:
            raise
        return await cluster.list("Pod", namespace, fields=fields)


def unreachable_kubelet(node: str, error: str) -> Finding:
    """Report a kubelet; `error` is the API server's message from a failed read of a log."""
    if "x509" in error or "tls" in error.lower():
        fix = "kubectl get csr; kubectl certificate approve NAME  # the kubelet's serving certificate"
    else:
        fix = f"kubectl get node {node} -o wide  # check its address and TCP 10250 from the API server"
    return broken(LOGS, f"{node} unreachable: {error}", fix)


def _log_unreadable(node: str, denied: Sequence[str]) -> Finding:
    """Report a node where no log was read: no pod runs there, or reading is denied in these namespaces."""
    if not denied:
        return warning(LOGS, f"{node}: unknown; no running pod to read a log from", "")
    move = f" (apply the Role and RoleBinding of deploy/doctor in {denied[0]})"
    move = "" if "dcgm-exporter" in denied else move
    return warning(LOGS, f"{node}: unknown; no permission to read logs in {listed(denied)}{move}", GRANT_READ)


def gpu_checks(pools: Iterable[Machine] = ()) -> dict[str, ClusterCheck]:
    """`pools`: what an autoscaler can add."""
    sizes = (each for pool in pools for each in pool.resources.items())
    scaled = any(size and GPU_RESOURCE.fullmatch(name) for name, size in sizes)
    return {
        PLUGIN: of_lists(partial(device_plugins, scaled=scaled), "DaemonSet", "Node"),
        NODES: of_lists(partial(gpu_nodes, scaled=scaled), "Node"),
    }
