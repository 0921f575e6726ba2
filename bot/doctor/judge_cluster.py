"""What the cluster's answers say about an installation: from plain objects to findings. Pure.

The faults are those of real clusters: GPUs that vanish from a node, a kubelet nobody can reach, a MySQL that
its own liveness probe kills before it is ready.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bot.core.wording import counted, listed
from bot.doctor.findings import Finding, Level, broken, ok, warning
from k8s.gpus import is_exporter
from k8s.objects import GPU, Manifest, true_conditions

CRDS = tuple(f"{kind}.kubeflow.org" for kind in ("experiments", "trials", "suggestions"))
INJECTION = "katib.kubeflow.org/metrics-collector-injection"
USAGE = "kubectl apply -k deploy/usage"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
PLUGIN = re.compile(r"(nvidia|amd|rocm|gpu|habana).*device-plugin")
TRAP = "; while MySQL first fills its disk, the stock liveness probe kills it after about a minute"
# A startup probe as the liveness probe is, with ten minutes of patience.
FIRST = "/spec/template/spec/containers/0"
PATIENCE = (
    f"""patch deployment katib-mysql --type=json -p '[{{"op":"copy","from":"{FIRST}/livenessProbe","""
    f""""path":"{FIRST}/startupProbe"}},{{"op":"replace","path":"{FIRST}/startupProbe/failureThreshold","""
    """"value":120}]'"""
)


def rights(namespace: str, answers: Mapping[str, bool], fix: str) -> Finding:
    """`answers`: "verb resource" -> may the bot do that; `fix` gives all of them."""
    check = f"rights in {namespace}"
    if denied := [right for right, allowed in answers.items() if not allowed]:
        return broken(check, f"may not {', '.join(denied)}", fix)
    return ok(check, f"all {len(answers)} of them")


def namespace(name: str, found: Manifest | None) -> Finding:
    check = f"namespace {name}"
    label = f"kubectl label namespace {name} {INJECTION}=enabled"
    if found is None:
        return broken(check, "does not exist", f"kubectl create namespace {name} && {label}")
    if found["metadata"].get("labels", {}).get(INJECTION) != "enabled":
        return broken(
            check, f"lacks the label {INJECTION}=enabled, so Katib refuses experiments there", label
        )
    return ok(check, "labelled for Katib")


def build_namespace(name: str, found: Manifest | None) -> Finding:
    check = f"namespace {name}"
    if found is None:
        return broken(check, "does not exist", "kubectl apply -f deploy/builds/rights.yaml")
    if found["metadata"].get("labels", {}).get(INJECTION) == "enabled":
        what = f"has the label {INJECTION}=enabled, so builds stop whenever Katib's webhook is away"
        return warning(check, what, f"kubectl label namespace {name} {INJECTION}-")
    return ok(check, "for builds alone")


def katib_crds(found: Mapping[str, Manifest | None]) -> Finding:
    absent = [name for name, crd in found.items() if crd is None or not _serves(crd)]
    if absent:
        return broken(
            "Katib CRDs", f"v1beta1 is not served: {', '.join(absent)}", "install Katib: docs/install.md"
        )
    return ok("Katib CRDs", f"{len(found)} serve v1beta1")


def _serves(crd: Manifest) -> bool:
    versions = crd["spec"].get("versions", [])
    return any(v["name"] == "v1beta1" and v.get("served") for v in versions)


def katib_deployments(everywhere: Iterable[Manifest]) -> Finding:
    check = "Katib deployments"
    there = {d["metadata"]["name"]: d for d in everywhere if d["metadata"]["name"].startswith("katib-")}
    needed = ("katib-controller", "katib-db-manager")
    if absent := [name for name in needed if name not in there]:
        return broken(check, f"{listed(absent)} not found", "install Katib: docs/install.md")
    where = there["katib-controller"]["metadata"]["namespace"]
    names = [*needed, *({"katib-mysql", "katib-postgres"} & there.keys())]  # neither: a database elsewhere
    idle = [name for name in names if not there[name].get("status", {}).get("readyReplicas")]
    if "katib-mysql" in idle and _is_trap(there["katib-mysql"]):
        return broken(check, f"not ready: {listed(idle)}{TRAP}", f"kubectl -n {where} {PATIENCE}")
    if idle:
        return broken(check, f"not ready: {listed(idle)}", f"kubectl -n {where} describe pods")
    return ok(check, f"{listed(names)} ready in {where}")


def _is_trap(mysql: Manifest) -> bool:
    container = mysql["spec"]["template"]["spec"]["containers"][0]
    return "livenessProbe" in container and "startupProbe" not in container


def service_of(webhooks: Manifest | None) -> Manifest:
    """Who answers for a webhook configuration: `name` and `namespace`, or nothing."""
    hooks = (webhooks or {}).get("webhooks") or [{}]
    service: Manifest = hooks[0].get("clientConfig", {}).get("service", {})
    return service


def url_of(webhooks: Manifest | None) -> str:
    """The URL of a controller that runs outside the cluster; without what may be a secret in it."""
    hooks = (webhooks or {}).get("webhooks") or [{}]
    return str(hooks[0].get("clientConfig", {}).get("url", "")).partition("?")[0]


def katib_webhook(kind: str, config: Manifest | None, slices: Iterable[Manifest]) -> Finding:
    """`slices`: the EndpointSlices of the service that the configuration names."""
    check = f"Katib {'validating' if kind.startswith('Validating') else 'mutating'} webhook"
    service, url = service_of(config), url_of(config)
    if url:  # the API server trusts the system's certificates there, and no EndpointSlice tells who answers
        return ok(check, f"calls {url}; Sweepbot can't check an address outside the cluster")
    if not config or not service:
        return broken(check, "katib.kubeflow.org is not installed", "install Katib: docs/install.md")
    restart = f"kubectl -n {service['namespace']} rollout restart deployment katib-controller"
    if not all(hook["clientConfig"].get("caBundle") for hook in config["webhooks"]):
        return broken(check, "has no certificate yet, so every experiment is refused", restart)
    ends = [e for s in slices for e in s.get("endpoints") or []]
    if not any(e.get("conditions", {}).get("ready") is not False for e in ends):
        return broken(check, f"nobody answers behind the service {service['name']}", restart)
    return ok(check, f"answered by {service['name']} in {service['namespace']}")


def device_plugins(daemonsets: Iterable[Manifest]) -> list[Finding]:
    """Some come with helpers for sharing GPUs, which fit no node where nobody shares."""
    check, plugins = "GPU device plugin", [d for d in daemonsets if _is_plugin(d)]
    if not plugins:
        return [broken(check, "there is none, so nodes offer no GPUs", "install one: docs/install.md")]
    placed = [d for d in plugins if d.get("status", {}).get("desiredNumberScheduled")]
    if not placed:
        names = listed(d["metadata"]["name"] for d in plugins)
        look = f"kubectl -n {plugins[0]['metadata']['namespace']} describe daemonsets"
        return [
            broken(check, f"{names} fits no node: compare its node selector with the nodes' labels", look)
        ]
    return [_device_plugin(daemonset) for daemonset in placed]


def _device_plugin(daemonset: Manifest) -> Finding:
    check, meta, status = "GPU device plugin", daemonset["metadata"], daemonset["status"]
    ready, wanted = status.get("numberReady", 0), status["desiredNumberScheduled"]
    if ready < wanted:
        look = f"kubectl -n {meta['namespace']} describe daemonset {meta['name']}"
        return broken(check, f"{meta['name']} is ready on {ready}/{wanted} nodes", look)
    return ok(check, f"{meta['name']} {ready}/{wanted}")


def _is_plugin(daemonset: Manifest) -> bool:
    containers = daemonset["spec"]["template"]["spec"].get("containers", [])
    names = [daemonset["metadata"]["name"], *(c.get("image", "") for c in containers)]
    return any(PLUGIN.search(name) for name in names)


def gpu_nodes(nodes: Iterable[Manifest]) -> list[Finding]:
    """One finding for all nodes that are well, or one for each that is not."""
    found = [node for node in nodes if _gpus(node, "capacity")]
    if not found:
        return [broken("GPU nodes", f"no node has {GPU}", "kubectl describe nodes | grep -A9 Capacity")]
    troubles = [trouble for node in found if (trouble := _node_trouble(node))]
    if not any(has_usable_gpus(node) for node in found):
        return [replace(trouble, level=Level.BROKEN) for trouble in troubles]
    total = sum(_gpus(node, "allocatable") for node in found)
    return troubles or [ok("GPU nodes", f"{total} GPUs on {len(found)} nodes")]


def exporters(pods: Iterable[Manifest], nodes: Iterable[Manifest]) -> list[Finding]:
    """Is there a dcgm-exporter on every node with GPUs?"""
    there = {pod["spec"].get("nodeName") for pod in pods if is_exporter(pod)}
    wanted = [node["metadata"]["name"] for node in nodes if has_usable_gpus(node)]
    if not wanted:
        return []  # the check of nodes tells
    fix = "kubectl get pods -A -o wide | grep dcgm-exporter; it comes with NVIDIA's GPU operator or GKE"
    if missing := [name for name in wanted if name not in there]:
        what = f"no dcgm-exporter runs on {listed(missing)}: what GPUs do there is not known"
        return [warning("GPU use", what, fix)]
    return [ok("GPU use", f"dcgm-exporter on {counted(len(wanted), 'node')}")]


def unread(denied: Sequence[tuple[str, str, str]]) -> Finding:
    """`denied`: verb, resource and namespace ("": all of them) of what is needed to ask exporters."""
    each = [f"{verb} {resource} in {home or 'all namespaces'}" for verb, resource, home in denied]
    elsewhere = sorted({home for _, _, home in denied} - {"", "dcgm-exporter"})
    move = (
        f" (the Role and RoleBinding of deploy/usage belong in {listed(elsewhere)} here)" if elsewhere else ""
    )
    return warning("GPU use", f"may not {listed(each)}: what GPUs do is not known{move}", USAGE)


def unheard(node: str, denied: Sequence[str], fix: str) -> Finding:
    """No pod's log could be asked for, because of the rights in these namespaces, or because none runs."""
    if not denied:
        return warning("kubelet logs", f"{node}: unknown, no pod runs there whose log could be read", "")
    move = (
        ""
        if "kube-system" in denied
        else f" (the Role and RoleBinding of deploy/doctor belong in {denied[0]})"
    )
    return warning("kubelet logs", f"{node}: unknown, may not read logs in {listed(denied)}{move}", fix)


def has_usable_gpus(node: Manifest) -> bool:
    return "Ready" in true_conditions(node) and not _cordoned(node) and _gpus(node, "allocatable") > 0


def _cordoned(node: Manifest) -> bool:
    return bool(node.get("spec", {}).get("unschedulable"))


def _gpus(node: Manifest, which: str) -> int:
    return int(node.get("status", {}).get(which, {}).get(GPU, 0))


def _node_trouble(node: Manifest) -> Finding | None:
    check, name, capacity = "GPU nodes", node["metadata"]["name"], _gpus(node, "capacity")
    if "Ready" not in true_conditions(node):
        return warning(check, f"{name} is not ready", f"kubectl describe node {name}")
    if _cordoned(node):
        return warning(check, f"{name} is cordoned", f"kubectl uncordon {name}")
    if lost := capacity - _gpus(node, "allocatable"):
        fix = f"on {name}: nvidia-smi; dmesg | grep -i xid; then reset the GPU or reboot"
        return warning(check, f"{lost} of {capacity} GPUs fell out of {name}", fix)
    return None


def storage_class(classes: Iterable[Manifest]) -> Finding:
    check = "default StorageClass"
    patch = """kubectl patch storageclass {} -p '{{"metadata":{{"annotations":{{"%s":"%s"}}}}}}'"""
    names = {c["metadata"]["name"]: c["metadata"].get("annotations", {}).get(DEFAULT_CLASS) for c in classes}
    defaults = [name for name, mark in names.items() if mark == "true"]
    if not names:
        what = "the cluster has no StorageClass"
        return broken(check, what, "install a storage provisioner: docs/install.md, step 2")
    if not defaults:
        fix = (patch % (DEFAULT_CLASS, "true")).format(next(iter(names)))
        return broken(check, f"none of {listed(names)} is", fix)
    if len(defaults) > 1:
        fix = (patch % (DEFAULT_CLASS, "false")).format(defaults[-1])
        return warning(check, f"there are {len(defaults)}: {listed(defaults)}", fix)
    return ok(check, defaults[0])


def kubelet(node: str, refusal: str) -> Finding:
    """`refusal`: what the API server said when it could not fetch a log from this node."""
    check = "kubelet logs"
    if "x509" in refusal or "tls" in refusal.lower():
        fix = "kubectl get csr; kubectl certificate approve NAME (the kubelet's serving certificate)"
    else:
        fix = f"kubectl get node {node} -o wide: is that its address, and TCP 10250 open to the API server?"
    return broken(check, f"{node} can't be reached: {refusal}", fix)
