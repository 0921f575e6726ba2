"""Check what reservations need: permissions in the teams' namespaces, queues, and the lowest priority."""

from bot.config.policy import Config
from bot.config.settings import Settings
from bot.doctor.findings import Finding, broken, ok
from bot.doctor.probe_cluster import granted
from bot.reservations.models import team_queue
from k8s.api.client import KubernetesClient
from k8s.objects import Manifest
from k8s.rbac import FOR_RESERVATIONS
from k8s.reservations import PRIORITY_CLASS

CHECK = "reservations"


async def reservations(cluster: KubernetesClient, settings: Settings, config: Config) -> list[Finding]:
    """Probe what `reservations: true` needs; nothing without it."""
    if not config.reservations:
        return []
    places = [team_queue(team.name, config) for team in config.teams]
    namespaces = {namespace or settings.k8s_namespace for namespace, queue in places if queue}
    if not namespaces:
        return [broken(CHECK, "no team has a queue", "set teams.NAME.queue, or remove reservations:")]
    found = [
        await granted(
            cluster, each, FOR_RESERVATIONS, f"kubectl -n {each} apply -f deploy/reservations/rights.yaml"
        )
        for each in sorted(namespaces)
    ]
    return [*found, priority(await cluster.list("WorkloadPriorityClass", ""))]


def priority(classes: list[Manifest]) -> Finding:
    """Evaluate the class of placeholders: any other Workload of their queue must be able to preempt them."""
    values = {each["metadata"]["name"]: int(each["value"]) for each in classes}
    mine, fix = values.pop(PRIORITY_CLASS, None), "kubectl apply -f deploy/reservations/priority.yaml"
    if mine is None:
        return broken(CHECK, f"WorkloadPriorityClass {PRIORITY_CLASS} doesn't exist", fix)
    if mine >= min([0, *values.values()]):
        return broken(CHECK, f"WorkloadPriorityClass {PRIORITY_CLASS} isn't the lowest", fix)
    return ok(CHECK, "GPUs can be reserved")
