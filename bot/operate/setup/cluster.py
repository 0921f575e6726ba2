"""Look at a cluster before the installation, with the caller's own permissions. Nothing is changed."""

from collections.abc import Iterable
from dataclasses import dataclass

from bot.core.finding import Finding, broken, ok, warning
from bot.operate.check_cluster import KATIB, default_storage_class
from bot.operate.check_gpus import GPUS, USE, gpu_use
from bot.operate.concurrently import API_FIX, Findings, Named, run_all
from bot.text.wording import listed
from k8s.api.client import KubernetesClient, Manifests
from k8s.api.errors import ApiError, UnreachableError
from k8s.nodes.gpus import read_node
from k8s.objects import Manifest, Ref

INSTALL = "name yours below, or install one: docs/install.md, step {}"
ENFORCE = "pod-security.kubernetes.io/enforce"
LEVELS = {"sweepbot": "restricted", "sweeps": "baseline"}  # as deploy/base/namespaces.yaml sets them
QUEUES = "localqueues.kueue.x-k8s.io"
PORTS = {"registry": (5000,), "MLflow": (5000, 80), "Prometheus": (9090,)}  # usual ones of their Services


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the cluster has, and the answers that it suggests; "" and 0 if unknown."""

    findings: tuple[Finding, ...]
    registry: str = ""
    mlflow: str = ""
    gpus: int = 0  # of the largest node


async def look() -> Seen:
    """Raises nothing: without access to a cluster, that is the finding."""
    from kubernetes.aio.config import ConfigException  # noqa: PLC0415  see KubernetesClient.connect

    try:
        cluster = await KubernetesClient.connect()
    except (ConfigException, OSError) as error:
        return Seen(findings=(broken("Kubernetes API", f"can't connect: {error}", API_FIX),))
    try:
        version = ok("Kubernetes API", await cluster.version())
        found = await run_all(_checks(cluster), grant="")
        services, nodes = await _listed(cluster, "Service"), await _listed(cluster, "Node")
    except (ApiError, UnreachableError) as error:
        return Seen(findings=(broken("Kubernetes API", str(error), API_FIX),))
    finally:
        await cluster.close()
    registry, mlflow = address(services, "registry"), address(services, "MLflow")
    return Seen(
        findings=(version, *found, *service_findings(services)),
        registry=f"http://{registry}" if registry else "",
        mlflow=f"http://{mlflow}" if mlflow else "",
        gpus=max((each.allocatable for node in nodes if (each := read_node(node))), default=0),
    )


def _checks(cluster: KubernetesClient) -> Iterable[Named]:
    for name, check in (KATIB | GPUS).items():
        yield name, check(cluster)
    yield USE, gpu_use(cluster, scrapes=False)
    yield "default StorageClass", default_storage_class(cluster)
    yield "namespaces", _namespaces(cluster)
    yield "Kueue", _kueue(cluster)
    yield "ingress", _ingress(cluster)


async def _listed(cluster: KubernetesClient, kind: str) -> Manifests:
    try:
        return await cluster.list(kind, "")
    except ApiError as error:
        if error.status != 403:
            raise
        return []


async def _namespaces(cluster: KubernetesClient) -> Findings:
    found = {name: await cluster.get(Ref("Namespace", "", name)) for name in LEVELS}
    return namespaces(found)


def namespaces(found: dict[str, Manifest | None]) -> Findings:
    """Evaluate the namespaces that the manifests create or change."""
    there = {
        name: each["metadata"].get("labels", {}).get(ENFORCE, "") for name, each in found.items() if each
    }
    changed = [f"{name} to {LEVELS[name]}" for name, level in there.items() if level != LEVELS[name]]
    if changed:
        what = f"Pod Security changes in {listed(changed)}"
        return [warning("namespaces", what, "kubectl get pods -A  # nothing else should run there")]
    created = [name for name in found if name not in there]
    return [ok("namespaces", f"{listed(created)} will be created" if created else f"{listed(there)} exist")]


async def _kueue(cluster: KubernetesClient) -> Findings:
    if await cluster.get(Ref("CustomResourceDefinition", "", QUEUES)):
        return [ok("Kueue", "installed; trials wait in its queues with queues: in config.yaml")]
    return [ok("Kueue", "not installed, and not needed")]


async def _ingress(cluster: KubernetesClient) -> Findings:
    names = [each["metadata"]["name"] for each in await cluster.list("IngressClass", "")]
    use = "only signed HTTP needs one (SLACK_MODE=http)"
    return [ok("ingress", f"{listed(names) or 'no class'}; {use}")]


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
        if what.lower() in each["metadata"]["name"] and port["port"] in usual
    ]
    if not found:
        return ""
    _, namespace, name, port = min(found)
    return f"{name}.{namespace}.svc:{port}"
