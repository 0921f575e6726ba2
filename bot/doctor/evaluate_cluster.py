"""Turn Kubernetes objects into findings. Pure.

Covers faults of real clusters: GPUs that are no longer allocatable, an unreachable kubelet, and a MySQL that
its own liveness probe kills before it is ready.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bot.doctor.findings import Finding, Level, broken, ok, warning
from bot.text.wording import counted, listed
from k8s.nodes.dcgm import is_exporter
from k8s.nodes.gpus import GpuNode, read_node
from k8s.objects import GPU, Manifest

CRDS = tuple(f"{kind}.kubeflow.org" for kind in ("experiments", "trials", "suggestions"))
INJECTION = "katib.kubeflow.org/metrics-collector-injection"
APPLY_USAGE = "kubectl apply -k deploy/usage"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
DEVICE_PLUGIN = re.compile(r"(nvidia|amd|rocm|gpu|habana).*device-plugin")
MYSQL_LIVENESS = (
    ". The stock liveness probe kills MySQL after about a minute, before its first initialization finishes"
)
# Copies the liveness probe to a startup probe, and allows it 10 minutes.
MYSQL = "/spec/template/spec/containers/0"
ADD_STARTUP_PROBE = (
    f"""patch deployment katib-mysql --type=json -p '[{{"op":"copy","from":"{MYSQL}/livenessProbe","""
    f""""path":"{MYSQL}/startupProbe"}},{{"op":"replace","path":"{MYSQL}/startupProbe/failureThreshold","""
    """"value":120}]'"""
)


def permissions(namespace: str, answers: Mapping[str, bool], fix: str) -> Finding:
    """Evaluate the bot's RBAC permissions.

    Args:
        answers: "verb resource" -> is the bot allowed to do that.
        fix: the command that grants all of them.
    """
    check = f"RBAC in {namespace or 'all namespaces'}"
    if denied := [permission for permission, allowed in answers.items() if not allowed]:
        return broken(check, f"missing {', '.join(denied)}", fix)
    return ok(check, f"{len(answers)} of {len(answers)} granted")


def namespace(name: str, found: Manifest | None) -> Finding:
    check = f"namespace {name}"
    label = f"kubectl label namespace {name} {INJECTION}=enabled"
    if found is None:
        return broken(check, "does not exist", f"kubectl create namespace {name} && {label}")
    if found["metadata"].get("labels", {}).get(INJECTION) != "enabled":
        return broken(check, f"missing label {INJECTION}=enabled; Katib rejects experiments here", label)
    return ok(check, "labeled for Katib")


def build_namespace(name: str, found: Manifest | None) -> Finding:
    check = f"namespace {name}"
    if found is None:
        return broken(check, "does not exist", "kubectl apply -f deploy/builds/rights.yaml")
    if found["metadata"].get("labels", {}).get(INJECTION) == "enabled":
        what = f"has the label {INJECTION}=enabled; builds can't start while Katib's webhook is unavailable"
        return warning(check, what, f"kubectl label namespace {name} {INJECTION}-")
    return ok(check, "builds only")


def katib_crds(found: Mapping[str, Manifest | None]) -> Finding:
    absent = [name for name, crd in found.items() if crd is None or not _serves(crd)]
    if absent:
        return broken(
            "Katib CRDs", f"v1beta1 not served: {', '.join(absent)}", "install Katib: docs/install.md"
        )
    return ok("Katib CRDs", f"{len(found)} serve v1beta1")


def _serves(crd: Manifest) -> bool:
    versions = crd["spec"].get("versions", [])
    return any(v["name"] == "v1beta1" and v.get("served") for v in versions)


def katib_deployments(deployments: Iterable[Manifest]) -> Finding:
    check = "Katib deployments"
    found = {d["metadata"]["name"]: d for d in deployments if d["metadata"]["name"].startswith("katib-")}
    needed = ("katib-controller", "katib-db-manager")
    if absent := [name for name in needed if name not in found]:
        return broken(check, f"{listed(absent)} not found", "install Katib: docs/install.md")
    namespace = found["katib-controller"]["metadata"]["namespace"]
    names = [*needed, *({"katib-mysql", "katib-postgres"} & found.keys())]  # neither: an external database
    unready = [name for name in names if not found[name].get("status", {}).get("readyReplicas")]
    if "katib-mysql" in unready and _lacks_startup_probe(found["katib-mysql"]):
        return broken(
            check,
            f"not ready: {listed(unready)}{MYSQL_LIVENESS}",
            f"kubectl -n {namespace} {ADD_STARTUP_PROBE}",
        )
    if unready:
        return broken(check, f"not ready: {listed(unready)}", f"kubectl -n {namespace} describe pods")
    return ok(check, f"{listed(names)} ready in {namespace}")


def _lacks_startup_probe(mysql: Manifest) -> bool:
    container = mysql["spec"]["template"]["spec"]["containers"][0]
    return "livenessProbe" in container and "startupProbe" not in container


def service_of(webhooks: Manifest | None) -> Manifest:
    """Return `name` and `namespace` of the webhook's service; empty if it is called by URL."""
    hooks = (webhooks or {}).get("webhooks") or [{}]
    service: Manifest = hooks[0].get("clientConfig", {}).get("service", {})
    return service


def url_of(webhooks: Manifest | None) -> str:
    """Return the URL of a webhook outside the cluster, without its query, which can hold a secret."""
    hooks = (webhooks or {}).get("webhooks") or [{}]
    return str(hooks[0].get("clientConfig", {}).get("url", "")).partition("?")[0]


def katib_webhook(kind: str, config: Manifest | None, slices: Iterable[Manifest]) -> Finding:
    """Evaluate one of Katib's webhook configurations.

    Args:
        slices: the EndpointSlices of the service that `config` names.
    """
    check = f"Katib {'validating' if kind.startswith('Validating') else 'mutating'} webhook"
    service, url = service_of(config), url_of(config)
    if url:  # no EndpointSlice to look at, and the API server trusts the system's certificates
        return ok(check, f"calls {url}; Sweepbot can't check URLs outside the cluster")
    if not config or not service:
        return broken(check, "katib.kubeflow.org is not installed", "install Katib: docs/install.md")
    restart = f"kubectl -n {service['namespace']} rollout restart deployment katib-controller"
    if not all(hook["clientConfig"].get("caBundle") for hook in config["webhooks"]):
        return broken(check, "no CA bundle yet; every experiment is rejected", restart)
    ends = [e for s in slices for e in s.get("endpoints") or []]
    if not any(e.get("conditions", {}).get("ready") is not False for e in ends):
        return broken(check, f"service {service['name']} has no ready endpoints", restart)
    return ok(check, f"served by {service['name']} in {service['namespace']}")


def device_plugins(daemonsets: Iterable[Manifest]) -> list[Finding]:
    """Count ready pods. A GPU-sharing helper that matches no node is ignored if another plugin matches."""
    check, plugins = "GPU device plugin", [d for d in daemonsets if _is_plugin(d)]
    if not plugins:
        return [broken(check, "not found; nodes have no allocatable GPUs", "install one: docs/install.md")]
    placed = [d for d in plugins if d.get("status", {}).get("desiredNumberScheduled")]
    if not placed:
        names = listed(d["metadata"]["name"] for d in plugins)
        look = f"kubectl -n {plugins[0]['metadata']['namespace']} describe daemonsets"
        return [
            broken(check, f"{names} matches no node; compare its node selector with the node labels", look)
        ]
    return [_device_plugin(daemonset) for daemonset in placed]


def _device_plugin(daemonset: Manifest) -> Finding:
    check, meta, status = "GPU device plugin", daemonset["metadata"], daemonset["status"]
    ready, wanted = status.get("numberReady", 0), status["desiredNumberScheduled"]
    if ready < wanted:
        look = f"kubectl -n {meta['namespace']} describe daemonset {meta['name']}"
        return broken(check, f"{meta['name']} ready on {ready}/{wanted} nodes", look)
    return ok(check, f"{meta['name']} {ready}/{wanted}")


def _is_plugin(daemonset: Manifest) -> bool:
    containers = daemonset["spec"]["template"]["spec"].get("containers", [])
    names = [daemonset["metadata"]["name"], *(c.get("image", "") for c in containers)]
    return any(DEVICE_PLUGIN.search(name) for name in names)


def gpu_nodes(nodes: Iterable[Manifest]) -> list[Finding]:
    """Return one finding if all GPU nodes are healthy, otherwise one for each that isn't.

    A MIG slice counts as one GPU.
    """
    found = [each for node in nodes if (each := read_node(node))]
    if not found:
        return [broken("GPU nodes", f"no node has {GPU}", "kubectl describe nodes | grep -A9 Capacity")]
    faults = [fault for node in found if (fault := _node_fault(node))]
    if not any(map(_usable, found)):
        return [replace(fault, level=Level.BROKEN) for fault in faults]
    total = sum(node.allocatable for node in found)
    return faults or [ok("GPU nodes", f"{counted(total, 'GPU')} on {counted(len(found), 'node')}")]


def exporters(pods: Iterable[Manifest], nodes: Iterable[Manifest]) -> list[Finding]:
    """Check that a dcgm-exporter runs on every node with GPUs."""
    covered = {pod["spec"].get("nodeName") for pod in pods if is_exporter(pod)}
    wanted = [node["metadata"]["name"] for node in nodes if has_usable_gpus(node)]
    if not wanted:
        return []  # gpu_nodes() reports it
    fix = "kubectl get pods -A -o wide | grep dcgm-exporter  # install it: docs/install.md"
    if missing := [name for name in wanted if name not in covered]:
        what = f"no dcgm-exporter on {listed(missing)}; GPU use there is unknown"
        return [warning("GPU use", what, fix)]
    return [ok("GPU use", f"dcgm-exporter on {counted(len(wanted), 'node')}")]


def exporters_denied(denied: Sequence[tuple[str, str, str]]) -> Finding:
    """Report missing permissions to scrape exporters.

    Args:
        denied: verb, resource, and namespace ("" for all) of each.
    """
    each = [f"{verb} {resource} in {namespace or 'all namespaces'}" for verb, resource, namespace in denied]
    elsewhere = sorted({namespace for _, _, namespace in denied} - {"", "dcgm-exporter"})
    move = f" (apply the Role and RoleBinding of deploy/usage in {listed(elsewhere)})" if elsewhere else ""
    return warning("GPU use", f"missing permission: {listed(each)}; GPU use is unknown{move}", APPLY_USAGE)


def log_unreadable(node: str, denied: Sequence[str], fix: str) -> Finding:
    """Report a node where no log was read: no pod runs there, or reading is denied in these namespaces."""
    if not denied:
        return warning("kubelet logs", f"{node}: unknown; no running pod to read a log from", "")
    move = (
        ""
        if "dcgm-exporter" in denied
        else f" (apply the Role and RoleBinding of deploy/doctor in {denied[0]})"
    )
    return warning(
        "kubelet logs", f"{node}: unknown; no permission to read logs in {listed(denied)}{move}", fix
    )


def has_usable_gpus(node: Manifest) -> bool:
    found = read_node(node)
    return found is not None and _usable(found)


def _usable(node: GpuNode) -> bool:
    return node.ready and not node.cordoned and node.allocatable > 0


def _node_fault(node: GpuNode) -> Finding | None:
    check, name = "GPU nodes", node.node
    if not node.ready:
        return warning(check, f"{name}: not ready", f"kubectl describe node {name}")
    if node.cordoned:
        return warning(check, f"{name}: cordoned", f"kubectl uncordon {name}")
    if missing := node.physical - node.allocatable:
        fix = f"on {name}: nvidia-smi; dmesg | grep -i xid; then reset the GPU or reboot"
        return warning(check, f"{name}: {missing} of {node.physical} GPUs not allocatable", fix)
    return None


def storage_class(classes: Iterable[Manifest]) -> Finding:
    check = "default StorageClass"
    patch = """kubectl patch storageclass {} -p '{{"metadata":{{"annotations":{{"%s":"%s"}}}}}}'"""
    names = {c["metadata"]["name"]: c["metadata"].get("annotations", {}).get(DEFAULT_CLASS) for c in classes}
    defaults = [name for name, mark in names.items() if mark == "true"]
    if not names:
        what = "no StorageClass exists"
        return broken(check, what, "install a storage provisioner: docs/install.md, step 4")
    if not defaults:
        fix = (patch % (DEFAULT_CLASS, "true")).format(next(iter(names)))
        return broken(check, f"none set ({', '.join(names)})", fix)
    if len(defaults) > 1:
        fix = (patch % (DEFAULT_CLASS, "false")).format(defaults[-1])
        return warning(check, f"{len(defaults)} set: {listed(defaults)}", fix)
    return ok(check, defaults[0])


def kubelet(node: str, error: str) -> Finding:
    """Report an unreachable kubelet.

    Args:
        error: the API server's message from a failed read of a log.
    """
    check = "kubelet logs"
    if "x509" in error or "tls" in error.lower():
        fix = "kubectl get csr; kubectl certificate approve NAME  # the kubelet's serving certificate"
    else:
        fix = f"kubectl get node {node} -o wide  # check its address and TCP 10250 from the API server"
    return broken(check, f"{node} unreachable: {error}", fix)
