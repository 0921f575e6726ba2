"""Check Kueue for `queues:` and `priorities:`: its API, the queues, and the priority classes."""

from collections.abc import Iterable, Sequence

from bot.config.policy import Config, all_namespaces
from bot.config.queues import QueuePolicy
from bot.config.settings import Settings
from bot.doctor.findings import Finding, broken, ok, warning
from bot.text.wording import counted, listed
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.objects import Manifest, Ref

CHECK = "Kueue"
GRANT = "kubectl apply -k deploy/queues"
DEFAULT = "default"  # Kueue puts every Job of a namespace into a LocalQueue of this name


async def queues(cluster: KubernetesClient, settings: Settings, config: Config) -> list[Finding]:
    """Probe what the configuration names; nothing if it names neither queues nor priorities."""
    policy = config.queueing
    names = _queue_names(config)
    if not names:
        return await _pod_priorities(cluster, policy)
    namespaces = all_namespaces(settings.k8s_namespace, config)
    try:
        local = [q for each in namespaces for q in await cluster.list("LocalQueue", each)]
    except ApiError as error:
        if error.status != 404:
            raise
        fix = "https://kueue.sigs.k8s.io/docs/installation, or remove queues:"
        return [broken(CHECK, "not installed; queues: needs it", fix)]
    found = local_queues(names, namespaces, local)
    found += await _cluster_queues(cluster, local)
    found += await _classes(cluster, policy)
    found += captured_builds(settings.builds_in, local)
    return found or [ok(CHECK, f"{counted(len(names), 'queue')} active, all priority classes exist")]


def local_queues(names: Iterable[str], namespaces: Sequence[str], found: Iterable[Manifest]) -> list[Finding]:
    """Evaluate the LocalQueues: each must be in a namespace for trials, and be active."""
    there = {(q["metadata"]["name"], q["metadata"]["namespace"]): q for q in found}
    faults = []
    for name in names:
        places = [each for each in namespaces if (name, each) in there]
        if not places:
            fix = f"create LocalQueue {name} in {namespaces[0]}, or remove it from the configuration"
            faults.append(broken(CHECK, f"LocalQueue {name} not found in {listed(namespaces)}", fix))
        for place in places:
            if why := _inactive(there[name, place]):
                look = f"kubectl -n {place} describe localqueue {name}"
                faults.append(broken(CHECK, f"LocalQueue {name} in {place} isn't active: {why}", look))
    return faults


def captured_builds(namespace: str, found: Iterable[Manifest]) -> list[Finding]:
    """Warn if builds wait in a queue: a LocalQueue `default` captures every Job of its namespace."""
    for queue in found:
        if (queue["metadata"]["name"], queue["metadata"]["namespace"]) == (DEFAULT, namespace):
            what = f"LocalQueue default in {namespace} captures builds, too"
            return [warning(CHECK, what, "set BUILD_NAMESPACE: docs/builds.md")]
    return []


def _queue_names(config: Config) -> list[str]:
    named = [each.name for each in config.queueing.queues]
    return list(dict.fromkeys([*named, *(team.queue for team in config.teams if team.queue)]))


async def _cluster_queues(cluster: KubernetesClient, local: Iterable[Manifest]) -> list[Finding]:
    names = sorted({q["spec"]["clusterQueue"] for q in local})
    try:
        found = {q["metadata"]["name"]: q for q in await cluster.list("ClusterQueue", "")}
    except ApiError as error:
        if error.status != 403:
            raise
        return [warning(CHECK, "ClusterQueues and priority classes unknown: no permission", GRANT)]
    faults = []
    for name in names:
        why = _inactive(found[name]) if name in found else "doesn't exist"
        look = f"kubectl describe clusterqueue {name}"
        faults += [broken(CHECK, f"ClusterQueue {name} isn't active: {why}", look)] if why else []
    return faults


async def _classes(cluster: KubernetesClient, policy: QueuePolicy) -> list[Finding]:
    try:
        found = await cluster.list("WorkloadPriorityClass", "")
    except ApiError as error:
        if error.status != 403:
            raise
        return []  # reported with the ClusterQueues
    return missing_classes("WorkloadPriorityClass", policy, {each["metadata"]["name"] for each in found})


async def _pod_priorities(cluster: KubernetesClient, policy: QueuePolicy) -> list[Finding]:
    if not policy.priorities:
        return []
    names = {each.class_name for each in policy.priorities}
    found = {name for name in names if await cluster.get(Ref("PriorityClass", "", name))}
    return missing_classes("PriorityClass", policy, found) or [
        ok(CHECK, "not used; all PriorityClasses exist")
    ]


def missing_classes(kind: str, policy: QueuePolicy, found: set[str]) -> list[Finding]:
    """Evaluate the priority classes: Kueue ignores a Job with an unknown one, without an event."""
    absent = [each for each in policy.priorities if each.class_name not in found]
    return [
        broken(
            CHECK,
            f"{kind} {each.class_name} (priority {each.name}) doesn't exist; its trials never start",
            f"create it, or correct priorities.{each.name}.class",
        )
        for each in absent
    ]


def _inactive(queue: Manifest) -> str:
    """Return why a queue admits nothing; "" if it is active, or has no status yet."""
    for each in queue.get("status", {}).get("conditions") or ():
        if each["type"] == "Active" and each["status"] != "True":
            return f"{each.get('reason', '')}: {each.get('message', '')}".strip(": ")
    return ""
