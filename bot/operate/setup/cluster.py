"""Look at a cluster for `sweepbot setup`, with the caller's own permissions: checks, Services that look like
a registry or MLflow, suggested limits, tolerations, and profile. Nothing is changed.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bot.core.finding import Finding, broken, ok, warning
from bot.operate.check_cluster import KATIB, default_storage_class, listed_unless
from bot.operate.check_gpus import USE, gpu_checks, gpu_use
from bot.operate.check_trial_kinds import has_sidecars
from bot.operate.findings import API_FIX, Findings, Named, run_all
from bot.text.wording import listed
from k8s.api.client import KubernetesClient, Manifests
from k8s.api.errors import ApiError, UnreachableError
from k8s.katib.device_claims import device_class
from k8s.nodes.gpus import node_sizes
from k8s.nodes.machines import read_machine, untolerated
from k8s.objects import GPU, Manifest, Ref

INSTALL = "name yours below, or install one: docs/install.md, step {}"
ENFORCE = "pod-security.kubernetes.io/enforce"
LEVELS = {"sweepbot": "restricted", "sweeps": "baseline"}  # as deploy/base/namespaces.yaml sets them
QUEUES = "localqueues.kueue.x-k8s.io"
PORTS = {"registry": (5000,), "MLflow": (5000, 80), "Prometheus": (9090,)}  # usual ones of their Services


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the cluster has, and what it suggests; "" if unknown."""

    findings: tuple[Finding, ...]
    reached: bool = True
    registry: str = ""
    mlflow: str = ""
    config: dict[str, Any] = field(default_factory=dict)  # of config.yaml
    sidecars: bool = False  # it starts them


async def look() -> Seen:
    """Raises nothing: without access to a cluster, that is the finding."""
    from kubernetes.aio.config import ConfigException  # noqa: PLC0415  see KubernetesClient.connect

    try:
        cluster = await KubernetesClient.connect()
    except ConfigException as error:
        return _unreached(f"can't connect: {error}")
    try:
        version = await cluster.version()
        found = await run_all(_checks(cluster), grant="")
        services, nodes = [await listed_unless(403, cluster, kind) or [] for kind in ("Service", "Node")]
    except (ApiError, UnreachableError) as error:
        return _unreached(str(error))
    finally:
        await cluster.close()
    registry, mlflow = address(services, "registry"), address(services, "MLflow")
    return Seen(
        findings=(ok("Kubernetes API", f"{version} at {cluster.url}"), *found, *service_findings(services)),
        registry=f"http://{registry}" if registry else "",
        mlflow=f"http://{mlflow}" if mlflow else "",
        config=suggested_config(nodes),
        sidecars=bool(has_sidecars(version)),
    )


def _unreached(why: str) -> Seen:
    return Seen(findings=(broken("Kubernetes API", why, API_FIX),), reached=False)


def _checks(cluster: KubernetesClient) -> Iterable[Named]:
    for name, check in (KATIB | gpu_checks()).items():
        yield name, check(cluster)
    yield USE, gpu_use(cluster, scrapes=False)
    yield "default StorageClass", default_storage_class(cluster)
    yield "namespaces", _namespaces(cluster)
    yield "Kueue", _kueue(cluster)
    yield "ingress", _ingress(cluster)


async def _namespaces(cluster: KubernetesClient) -> Findings:
    """Probe those that the manifests create or change."""
    found = {name: await cluster.get(Ref("Namespace", "", name)) for name in LEVELS}
    there = [each for each in found.values() if each]
    levels = {each["metadata"]["name"]: each["metadata"].get("labels", {}).get(ENFORCE) for each in there}
    if changed := [name for name, level in levels.items() if level != LEVELS[name]]:
        what = f"Pod Security changes to {listed(f'{LEVELS[name]} in {name}' for name in changed)}"
        look = f"kubectl -n {changed[0]} get pods  # nothing else should run there"
        return [warning("namespaces", what, look)]
    created = [name for name in LEVELS if name not in levels]
    return [ok("namespaces", f"{listed(created)} will be created" if created else f"{listed(levels)} exist")]


async def _kueue(cluster: KubernetesClient) -> Findings:
    if await cluster.get(Ref("CustomResourceDefinition", "", QUEUES)):
        return [ok("Kueue", "installed; trials wait in its queues with queues: in config.yaml")]
    return [ok("Kueue", "not installed, and not needed")]


async def _ingress(cluster: KubernetesClient) -> Findings:
    names = [each["metadata"]["name"] for each in await cluster.list("IngressClass", "")]
    use = "only signed HTTP needs one (SLACK_MODE=http)"
    return [ok("ingress", f"{listed(names) or 'no class'}; {use}")]


def suggested_config(nodes: Manifests) -> dict[str, Any]:
    """Return the GPUs of the largest node as a limit, and tolerations for taints that all GPU nodes have.

    Trials request nvidia.com/gpu. If no node offers it, a profile requests what they offer most of: a MIG
    profile, shared GPUs, or those of a DeviceClass.
    """
    left = Counter[str]()
    for node in nodes:
        left.update({name: each for name, (_, each) in node_sizes(node).items()})
    if not left.total():
        return {}
    resource = GPU if left[GPU] else left.most_common(1)[0][0]
    having = [(sizes[resource][1], node) for node in nodes if resource in (sizes := node_sizes(node))]
    first, *others = [_tolerations(node) for _, node in having]
    shared = [each for each in first if all(each in other for other in others)]
    name = device_class(resource)
    profile = {"gpus": 1, **({"device_class": name} if name else {"resource": resource})}
    return {
        "limits": {"gpus_per_trial": max(size for size, _ in having)},
        **({"trials": {"tolerations": shared}} if shared else {}),
        **({} if resource == GPU else {"profiles": {"gpu": profile}}),
    }


def _tolerations(node: Manifest) -> list[Manifest]:
    return [
        {"key": taint["key"]}
        | ({"value": taint["value"]} if taint.get("value") else {"operator": "Exists"})
        | {"effect": taint["effect"]}
        for taint in untolerated({}, read_machine(node).taints)
    ]


def service_findings(services: Manifests) -> Findings:
    """Evaluate the Services that look like what sweeps need."""
    found = []
    for check, step in (("registry", 5), ("MLflow", 7)):
        if where := address(services, check):
            found.append(ok(check, where))
        else:
            found.append(warning(check, "no Service looks like one", INSTALL.format(step)))
    prometheus = address(services, "Prometheus")
    use = f"http://{prometheus}; PROMETHEUS_URL can name it (docs/operate.md#choose-the-gpu-metrics-source)"
    return [*found, ok("Prometheus", use if prometheus else "no Service looks like one, and none is needed")]


def address(services: Manifests, what: str) -> str:
    """Return HOST:PORT of the Service with the shortest name that looks like it; "" if none does."""
    usual = PORTS[what]
    found = [
        (len(each["metadata"]["name"]), each["metadata"]["namespace"], each["metadata"]["name"], port["port"])
        for each in services
        for port in each["spec"].get("ports", ())
        if _looks_like(what, each["metadata"]) and port["port"] in usual
    ]
    if not found:
        return ""
    _, namespace, name, port = min(found)
    return f"{name}.{namespace}.svc:{port}"


def _looks_like(what: str, service: Manifest) -> bool:
    """OpenShift's own have TLS at these ports; MLflow's chart of Bitnami adds `mlflow-minio`."""
    own = service["namespace"].startswith("openshift-") or "minio" in service["name"]
    return what.lower() in service["name"] and not own
