"""Check what `environments:` names (namespace with Pod Security, classes, volumes of services), and the
permissions that it needs.
"""

from bot.core.finding import Finding, broken, ok, warning
from bot.operate.check_cluster import granted
from bot.platform.config.policy import Config, all_namespaces
from bot.platform.config.settings import Settings
from k8s.api.client import KubernetesClient
from k8s.objects import Manifest, Ref

ENVIRONMENTS = "environments"
APPLY = "kubectl apply -k deploy/environments"
ENFORCE = "pod-security.kubernetes.io/enforce"
# In the namespace of environments, from deploy/environments. Secrets can't be read: a login is computed.
FOR_ENVIRONMENTS = {
    ("", "events"): ("list",),
    ("", "persistentvolumeclaims"): ("create", "delete", "get", "list"),
    ("", "pods"): ("list", "watch"),
    ("", "secrets"): ("create", "patch"),
    ("", "services"): ("create", "patch"),
    ("apps", "statefulsets"): ("create", "delete", "get", "list", "patch", "watch"),
    ("networking.k8s.io", "ingresses"): ("create", "patch"),
}

# There, too, where `environments.services` is configured.
FOR_SERVICES = {("apps", "deployments"): ("create", "delete", "get", "list", "patch")}


async def environments(cluster: KubernetesClient, settings: Settings, config: Config) -> list[Finding]:
    """Return no findings where no environments are configured. Raises ApiError, UnreachableError."""
    wanted = config.environments
    if wanted is None:
        return []
    name = wanted.namespace
    if name in {*all_namespaces(settings.k8s_namespace, config), settings.builds_in}:
        what = f"namespace {name} also has trials or builds, whose pods could mount the credentials"
        return [broken(ENVIRONMENTS, what, f"set environments.namespace to one of its own; {APPLY}")]
    found = await cluster.get(Ref("Namespace", "", name))
    findings = [_restricted(name, found)]
    if found is not None:
        needed = FOR_ENVIRONMENTS | (FOR_SERVICES if wanted.services else {})
        findings.append(await granted(cluster, name, needed, APPLY))
        volumes = wanted.services.volumes if wanted.services else ()
        findings += [await _claim(cluster, name, each) for each in volumes]
    ingress = wanted.url and wanted.ingress_class
    for kind, key, class_ in (
        ("StorageClass", "storage_class", wanted.storage_class),
        ("IngressClass", "ingress_class", ingress),
    ):
        if not class_:
            continue
        there = sorted(each["metadata"]["name"] for each in await cluster.list(kind, ""))
        what = f"{kind} {class_} doesn't exist. Available: {', '.join(there) or 'none'}"
        fault = broken(ENVIRONMENTS, what, f"change environments.{key}")
        findings.append(ok(ENVIRONMENTS, f"{kind} {class_} exists") if class_ in there else fault)
    return findings


async def _claim(cluster: KubernetesClient, namespace: str, name: str) -> Finding:
    """Check a volume of services."""
    if await cluster.get(Ref("PersistentVolumeClaim", namespace, name)):
        return ok(ENVIRONMENTS, f"PersistentVolumeClaim {name} exists in {namespace}")
    what = f"PersistentVolumeClaim {name} doesn't exist in {namespace}"
    return broken(ENVIRONMENTS, what, "create it, or change environments.services.volumes")


def _restricted(name: str, found: Manifest | None) -> Finding:
    if found is None:
        return broken(ENVIRONMENTS, f"namespace {name} doesn't exist", APPLY)
    if (found["metadata"].get("labels") or {}).get(ENFORCE) != "restricted":
        fix = f"kubectl label namespace {name} {ENFORCE}=restricted"
        return warning(ENVIRONMENTS, f"namespace {name} doesn't enforce Pod Security restricted", fix)
    return ok(ENVIRONMENTS, f"namespace {name} enforces Pod Security restricted")
