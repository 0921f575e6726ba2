"""Check what trials need of a cluster: permissions (RBAC), namespaces, Katib's CRDs, Deployments, and
webhooks, machines that fit profiles, a default StorageClass.

What an answer means is decided in pure functions, as in the other files of checks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from bot.core.finding import Finding, broken, ok, warning
from bot.platform.config.policy import Config
from bot.platform.pod_health.rules_admission import katib_restart
from bot.sweep.launch.capacity import unfitting
from bot.text.wording import counted, listed
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.katib.training import INJECTION_LABEL
from k8s.nodes.listed import list_machines, list_nodes
from k8s.objects import Manifest, Ref
from k8s.rbac import FOR_BUILDS, FOR_RECORDS, FOR_TRIALS

Permissions = Mapping[tuple[str, str], tuple[str, ...]]
ClusterCheck = Callable[[KubernetesClient], Awaitable[list[Finding]]]

GRANT_READ = "kubectl apply -k deploy/doctor"  # lets a check read beyond the bot's own namespace
GRANT_BUILDS = "kubectl apply -f deploy/builds/rights.yaml"
INSTALL_KATIB = "install Katib: docs/install.md"
CRDS = tuple(f"{kind}.kubeflow.org" for kind in ("experiments", "trials", "suggestions"))
CONTROLLER = "katib-controller"
WEBHOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
OLD_DEFAULT_CLASS = "storageclass.beta.kubernetes.io/is-default-class"  # counts, too
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


async def listed_unless(
    status: int, cluster: KubernetesClient, kind: str, namespace: str = ""
) -> list[Manifest] | None:
    """Return all objects; None if the answer has this status: 403 without permission, 404 if unserved."""
    try:
        return await (list_nodes(cluster) if kind == "Node" else cluster.list(kind, namespace))
    except ApiError as error:
        if error.status != status:
            raise
        return None


def of_lists(evaluate: Callable[..., list[Finding]], *kinds: str) -> ClusterCheck:
    """Return the check that evaluates the lists of these kinds."""

    async def check(cluster: KubernetesClient) -> list[Finding]:
        return evaluate(*[await listed_unless(0, cluster, kind) for kind in kinds])

    return check


async def granted(
    cluster: KubernetesClient, namespace: str, wanted: Permissions, fix: str, *, name: str = ""
) -> Finding:
    """Probe permissions in a namespace, or in all for ""; with a name, those for objects of that name.

    Args:
        fix: the command that grants all of them.
    """
    each = [(*resource, verb) for resource, verbs in wanted.items() for verb in verbs]
    found = await asyncio.gather(*(allowed(cluster, namespace, *one, name=name) for one in each))
    denied = [f"{verb} {resource}" for (_, resource, verb), yes in zip(each, found, strict=True) if not yes]
    check = f"RBAC in {namespace or 'all namespaces'}"
    if denied:
        return broken(check, f"missing {', '.join(denied)}", fix)
    return ok(check, f"{len(each)} of {len(each)} granted")


async def allowed(
    cluster: KubernetesClient, namespace: str, group: str, resource: str, verb: str, name: str = ""
) -> bool:
    """Return whether the bot can do this to objects in the namespace, or in all for ""."""
    kind, _, sub = resource.partition("/")
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": kind, "subresource": sub}
    attributes |= {"name": name} if name else {}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}}
    answer = await cluster.create({**review, "spec": {"resourceAttributes": attributes}})
    return bool(answer["status"]["allowed"])


async def own_permissions(cluster: KubernetesClient, namespace: str) -> list[Finding]:
    return [await granted(cluster, namespace, FOR_RECORDS, "kubectl apply -f deploy/base/rights.yaml")]


async def trial_permissions(cluster: KubernetesClient, namespace: str, where: str = "") -> list[Finding]:
    fix = f"kubectl -n {namespace} apply -f deploy/namespace/rights.yaml{where}"
    return [await granted(cluster, namespace, FOR_TRIALS, fix)]


async def trial_namespace(cluster: KubernetesClient, name: str) -> list[Finding]:
    return [evaluate_namespace(name, await cluster.get(Ref("Namespace", "", name)))]


def evaluate_namespace(name: str, found: Manifest | None) -> Finding:
    check = f"namespace {name}"
    label = f"kubectl label namespace {name} {INJECTION_LABEL}=enabled"
    if found is None:
        return broken(check, "doesn't exist", f"kubectl create namespace {name} && {label}")
    if not _injects(found):
        what = f"missing label {INJECTION_LABEL}=enabled; Katib rejects experiments here"
        return broken(check, what, label)
    return ok(check, "labeled for Katib")


async def build_namespace(cluster: KubernetesClient, name: str) -> list[Finding]:
    """Probe BUILD_NAMESPACE. With Katib's label, its webhook would be called for each build pod."""
    found = await cluster.get(Ref("Namespace", "", name))
    rights = await granted(cluster, name, FOR_BUILDS, GRANT_BUILDS)
    return [rights, evaluate_build_namespace(name, found)]


def evaluate_build_namespace(name: str, found: Manifest | None) -> Finding:
    check = f"namespace {name}"
    if found is None:
        return broken(check, "doesn't exist", GRANT_BUILDS)
    if _injects(found):
        what = f"has the label {INJECTION_LABEL}=enabled; "
        what += "builds can't start while Katib's webhook is unavailable"
        return warning(check, what, f"kubectl label namespace {name} {INJECTION_LABEL}-")
    return ok(check, "builds only")


def _injects(namespace: Manifest) -> bool:
    return bool(namespace["metadata"].get("labels", {}).get(INJECTION_LABEL) == "enabled")


async def katib_crds(cluster: KubernetesClient) -> list[Finding]:
    """Only a served version counts."""
    found = {name: await cluster.get(Ref("CustomResourceDefinition", "", name)) for name in CRDS}
    if absent := [name for name, crd in found.items() if not serves(crd, "v1beta1")]:
        return [broken("Katib CRDs", f"v1beta1 not served: {', '.join(absent)}", INSTALL_KATIB)]
    return [ok("Katib CRDs", f"{len(found)} serve v1beta1")]


def serves(crd: Manifest | None, version: str) -> bool:
    versions = crd["spec"].get("versions", []) if crd else []
    return any(each["name"] == version and each.get("served") for each in versions)


async def list_controllers(cluster: KubernetesClient) -> list[Manifest]:
    """Return all Deployments, and StatefulSets, which Juju's charms of Kubeflow are."""
    charms = await listed_unless(403, cluster, "StatefulSet")
    return [*await cluster.list("Deployment", ""), *(charms or ())]


async def katib(cluster: KubernetesClient) -> list[Finding]:
    return katib_deployments(await list_controllers(cluster))


def katib_deployments(controllers: Iterable[Manifest]) -> list[Finding]:
    check = "Katib deployments"
    found = {d["metadata"]["name"]: d for d in controllers if d["metadata"]["name"].startswith("katib-")}
    needed = (CONTROLLER, "katib-db-manager")
    if absent := [name for name in needed if name not in found]:
        what = f"{listed(absent)} not found among all Deployments and StatefulSets"
        return [broken(check, what, INSTALL_KATIB)]
    namespace = found[CONTROLLER]["metadata"]["namespace"]
    names = [*needed, *({"katib-mysql", "katib-postgres"} & found.keys())]  # neither: an external database
    unready = [name for name in names if not found[name].get("status", {}).get("readyReplicas")]
    if not unready:
        return [ok(check, f"{listed(names)} ready in {namespace}")]
    what, fix = f"not ready: {listed(unready)}", "describe pods"
    if "katib-mysql" in unready and _lacks_startup_probe(found["katib-mysql"]):
        what, fix = f"{what}{MYSQL_LIVENESS}", ADD_STARTUP_PROBE
    return [broken(check, what, f"kubectl -n {namespace} {fix}")]


def _lacks_startup_probe(mysql: Manifest) -> bool:
    container = mysql["spec"]["template"]["spec"]["containers"][0]
    return "livenessProbe" in container and "startupProbe" not in container


async def katib_webhooks(cluster: KubernetesClient) -> list[Finding]:
    findings, controllers = [], await list_controllers(cluster)
    charmed = any(c["kind"] == "StatefulSet" and c["metadata"]["name"] == CONTROLLER for c in controllers)
    for kind in WEBHOOKS:
        config = await cluster.get(Ref(kind, "", "katib.kubeflow.org"))
        service = _called(config).get("service") or {}
        labels = f"kubernetes.io/service-name={service.get('name')}"
        slices = await cluster.list("EndpointSlice", service["namespace"], labels=labels) if service else []
        findings.append(katib_webhook(kind, config, slices, "statefulset" if charmed else "deployment"))
    return findings


def _called(webhooks: Manifest | None) -> Manifest:
    """Return what the API server calls: a `service`, or a `url` outside the cluster."""
    found: Manifest = ((webhooks or {}).get("webhooks") or [{}])[0].get("clientConfig", {})
    return found


def katib_webhook(
    kind: str, config: Manifest | None, slices: Iterable[Manifest], controller: str = "deployment"
) -> Finding:
    """Evaluate one of Katib's webhook configurations.

    Args:
        slices: the EndpointSlices of the service that `config` names.
        controller: what katib-controller is.
    """
    check = f"Katib {'validating' if kind.startswith('Validating') else 'mutating'} webhook"
    url = str(_called(config).get("url", "")).partition("?")[0]  # a query can hold a secret
    if url:  # no EndpointSlice to look at, and the API server trusts the system's certificates
        return ok(check, f"calls {url}; Sweepbot can't check URLs outside the cluster")
    service = _called(config).get("service")
    if not config or not service:
        return broken(check, "katib.kubeflow.org isn't installed", INSTALL_KATIB)
    restart = katib_restart(service["namespace"], controller)
    if not all(hook["clientConfig"].get("caBundle") for hook in config["webhooks"]):
        return broken(check, "no CA bundle yet; every experiment is rejected", restart)
    ends = [e for s in slices for e in s.get("endpoints") or []]
    if not any(e.get("conditions", {}).get("ready") is not False for e in ends):
        return broken(check, f"service {service['name']} has no ready endpoints", restart)
    return ok(check, f"served by {service['name']} in {service['namespace']}")


def storage_class(classes: Iterable[Manifest]) -> list[Finding]:
    check = "default StorageClass"
    patch = """kubectl patch storageclass {} -p '{{"metadata":{{"annotations":{{"%s":"%s"}}}}}}'"""
    names = {c["metadata"]["name"]: c["metadata"].get("annotations", {}) for c in classes}
    marks = (DEFAULT_CLASS, OLD_DEFAULT_CLASS)
    defaults = [name for name, found in names.items() if "true" in map(found.get, marks)]
    if not names:
        fix = "install a storage provisioner: docs/install.md, step 4"
        return [broken(check, "no StorageClass exists", fix)]
    if not defaults:
        fix = (patch % (DEFAULT_CLASS, "true")).format(next(iter(names)))
        return [broken(check, f"none set ({', '.join(names)})", fix)]
    if len(defaults) > 1:
        fix = (patch % (DEFAULT_CLASS, "false")).format(defaults[-1])
        return [warning(check, f"{len(defaults)} set: {listed(defaults)}", fix)]
    return [ok(check, defaults[0])]


default_storage_class = of_lists(storage_class, "StorageClass")
KATIB: dict[str, ClusterCheck] = {
    "Katib CRDs": katib_crds,
    "Katib deployments": katib,
    "Katib webhooks": katib_webhooks,
}


async def profiles(cluster: KubernetesClient, config: Config) -> list[Finding]:
    """Return no findings without `profiles:`. Raises ApiError, UnreachableError."""
    if not config.profiles:
        return []
    machines = await list_machines(cluster)
    fix = "change it under profiles:, or declare its autoscaled pool under pools:, in SWEEPBOT_CONFIG"
    found = [
        broken("profiles", f"{one.name} fits no machine. {why}", fix)
        for one, why in unfitting(config, machines)
    ]
    named = [("PriorityClass", each.priority_class) for each in config.profiles]
    named += [("RuntimeClass", each.runtime_class) for each in config.profiles]
    for kind, name in dict.fromkeys(named):
        if name and not await cluster.get(Ref(kind, "", name)):
            fix = f"kubectl get {kind.lower()}  # then change profiles: in SWEEPBOT_CONFIG, or create it"
            found.append(broken("profiles", f"{kind} {name} doesn't exist", fix))
    count = len(config.profiles)
    passed = f"{counted(count, 'profile')} {'fits' if count == 1 else 'fit'} this cluster"
    return found or [ok("profiles", passed)]
