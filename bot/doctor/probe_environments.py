"""Check what `environments:` of the configuration names: the namespace, permissions, and classes."""

from collections.abc import Collection, Mapping

from bot.config.environments import EnvironmentConfig
from bot.config.policy import Config, all_namespaces
from bot.config.settings import Settings
from bot.doctor.findings import Finding, broken, ok, warning
from bot.doctor.probe_cluster import granted
from k8s.api.client import KubernetesClient
from k8s.objects import Manifest, Ref
from k8s.rbac import FOR_ENVIRONMENTS, FOR_SERVICES

CHECK = "environments"
APPLY = "kubectl apply -k deploy/environments"
ENFORCE = "pod-security.kubernetes.io/enforce"


async def environments(cluster: KubernetesClient, settings: Settings, config: Config) -> list[Finding]:
    """Return no findings where no environments are configured."""
    wanted = config.environments
    if wanted is None:
        return []
    taken = {*all_namespaces(settings.k8s_namespace, config), settings.builds_in}
    if wanted.namespace in taken:
        return [shared(wanted.namespace)]
    found = await cluster.get(Ref("Namespace", "", wanted.namespace))
    findings = [namespace(wanted.namespace, found)]
    if found is not None:
        needed = FOR_ENVIRONMENTS | (FOR_SERVICES if wanted.services else {})
        findings.append(await granted(cluster, wanted.namespace, needed, APPLY))
        findings += [await claim(cluster, wanted.namespace, name) for name in volumes(wanted)]
    for kind, name in classes(wanted).items():
        names = [each["metadata"]["name"] for each in await cluster.list(kind, "")]
        findings.append(object_class(kind, name, names))
    return findings


def classes(wanted: EnvironmentConfig) -> Mapping[str, str]:
    """Return the classes that the configuration names, by kind."""
    found = {"StorageClass": wanted.storage_class, "IngressClass": wanted.url and wanted.ingress_class}
    return {kind: name for kind, name in found.items() if name}


def volumes(wanted: EnvironmentConfig) -> tuple[str, ...]:
    return wanted.services.volumes if wanted.services else ()


async def claim(cluster: KubernetesClient, namespace: str, name: str) -> Finding:
    """Check a volume of services."""
    if await cluster.get(Ref("PersistentVolumeClaim", namespace, name)):
        return ok(CHECK, f"PersistentVolumeClaim {name} exists in {namespace}")
    what = f"PersistentVolumeClaim {name} does not exist in {namespace}"
    return broken(CHECK, what, "create it, or change environments.services.volumes")


def shared(name: str) -> Finding:
    what = f"namespace {name} also has trials or builds, whose pods could mount the credentials"
    return broken(CHECK, what, f"set environments.namespace to one of its own; {APPLY}")


def namespace(name: str, found: Manifest | None) -> Finding:
    if found is None:
        return broken(CHECK, f"namespace {name} does not exist", APPLY)
    if (found["metadata"].get("labels") or {}).get(ENFORCE) != "restricted":
        fix = f"kubectl label namespace {name} {ENFORCE}=restricted"
        return warning(CHECK, f"namespace {name} doesn't enforce Pod Security restricted", fix)
    return ok(CHECK, f"namespace {name} enforces Pod Security restricted")


def object_class(kind: str, name: str, there: Collection[str]) -> Finding:
    if name in there:
        return ok(CHECK, f"{kind} {name} exists")
    key = "storage_class" if kind == "StorageClass" else "ingress_class"
    known = ", ".join(sorted(there)) or "none"
    return broken(CHECK, f"{kind} {name} does not exist (there are: {known})", f"change environments.{key}")
