"""Check what the configuration asks of Kueue: `queues:` and `priorities:`."""

from collections.abc import Iterable, Sequence

from bot.core.finding import Finding, broken, ok, warning
from bot.operate.check_cluster import listed_unless
from bot.platform.config.policy import Config, all_namespaces
from bot.platform.config.queues import QueuePolicy
from bot.platform.config.settings import Settings
from bot.text.wording import counted, listed
from k8s.api.client import KubernetesClient
from k8s.kueue import DEFAULT
from k8s.objects import Manifest, Ref, condition

CHECK = "Kueue"
GRANT = "kubectl apply -k deploy/queues"


async def queues(cluster: KubernetesClient, settings: Settings, config: Config) -> list[Finding]:
    """Probe what the configuration names; nothing if it names neither queues nor priorities."""
    policy = config.queueing
    teams = (team.queue for team in config.teams if team.queue)
    names = list(dict.fromkeys([*(each.name for each in policy.queues), *teams]))
    if not names:
        return await _pod_priorities(cluster, policy)
    namespaces, local = all_namespaces(settings.k8s_namespace, config), list[Manifest]()
    for namespace in namespaces:
        if (here := await listed_unless(404, cluster, "LocalQueue", namespace)) is None:
            fix = "https://kueue.sigs.k8s.io/docs/installation, or remove queues:"
            return [broken(CHECK, "not installed; queues: needs it", fix)]
        local += here
    found = _local_queues(names, namespaces, local)
    found += await _cluster_queues(cluster, (q for q in local if q["metadata"]["name"] in names))
    classes = await listed_unless(403, cluster, "WorkloadPriorityClass")  # None: as the ClusterQueues
    if classes is not None:
        found += _missing_classes("WorkloadPriorityClass", policy, {c["metadata"]["name"] for c in classes})
    found += _captured(settings.builds_in, namespaces, local)
    return found or [ok(CHECK, f"{counted(len(names), 'queue')} active, all priority classes exist")]


def _local_queues(
    names: Iterable[str], namespaces: Sequence[str], found: Iterable[Manifest]
) -> list[Finding]:
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


def _captured(builds: str, namespaces: Iterable[str], found: Iterable[Manifest]) -> list[Finding]:
    """Warn if builds, or what proposes the trials, wait in a LocalQueue that captures them."""
    capturing = {q["metadata"]["namespace"] for q in found if q["metadata"]["name"] == DEFAULT}
    faults = []
    if builds in capturing:
        what = f"LocalQueue {DEFAULT} in {builds} captures builds, too"
        faults.append(warning(CHECK, what, "set BUILD_NAMESPACE: docs/builds.md"))
    for each in namespaces:
        if each in capturing:
            what = (
                f"LocalQueue {DEFAULT} in {each} captures Katib's suggestion services, too, from Kueue 0.16 "
                "on; without quota for them, no trial starts"
            )
            faults.append(warning(CHECK, what, "give it another name: docs/queues.md"))
    return faults


async def _cluster_queues(cluster: KubernetesClient, local: Iterable[Manifest]) -> list[Finding]:
    if (above := await listed_unless(403, cluster, "ClusterQueue")) is None:
        return [warning(CHECK, "ClusterQueues and priority classes unknown: no permission", GRANT)]
    found, faults = {q["metadata"]["name"]: q for q in above}, []
    names = sorted({q["spec"]["clusterQueue"] for q in local})
    for name in names:
        why = _inactive(found[name]) if name in found else "doesn't exist"
        look = f"kubectl describe clusterqueue {name}"
        faults += [broken(CHECK, f"ClusterQueue {name} isn't active: {why}", look)] if why else []
    specs = [found[name]["spec"] for name in names if name in found]
    in_cohort = any(spec.get("cohortName") or spec.get("cohort") for spec in specs)
    if in_cohort and await listed_unless(403, cluster, "Cohort") is None:
        what = "Cohorts unknown: no permission; parallel=auto doesn't count quotas of Cohort objects"
        faults.append(warning(CHECK, what, GRANT))
    return faults


def _inactive(queue: Manifest) -> str:
    """Return why a queue admits nothing; "" if it is active, or has no status yet."""
    found = condition(queue, "Active", "False")
    return f"{found.get('reason', '')}: {found.get('message', '')}".strip(": ")


async def _pod_priorities(cluster: KubernetesClient, policy: QueuePolicy) -> list[Finding]:
    if not policy.priorities:
        return []
    names = {each.class_ for each in policy.priorities}
    found = {name for name in names if await cluster.get(Ref("PriorityClass", "", name))}
    passed = ok(CHECK, "not used; all PriorityClasses exist")
    return _missing_classes("PriorityClass", policy, found) or [passed]


def _missing_classes(kind: str, policy: QueuePolicy, found: set[str]) -> list[Finding]:
    """Evaluate the priority classes: Kueue ignores a Job with an unknown one, without an event."""
    return [
        broken(
            CHECK,
            f"{kind} {each.class_} (priority {each.name}) doesn't exist; its trials never start",
            f"create it, or correct priorities.{each.name}.class",
        )
        for each in policy.priorities
        if each.class_ not in found
    ]
