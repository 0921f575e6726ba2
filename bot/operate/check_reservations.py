"""Check what `reservations: true` needs: permissions, queues of teams, and the lowest priority."""

from bot.core.finding import Finding, broken, ok
from bot.operate.check_cluster import granted
from bot.platform.config.policy import Config
from bot.platform.config.settings import Settings
from bot.workspaces.reservations.models import team_queue
from k8s.api.client import KubernetesClient
from k8s.objects import Manifest
from k8s.reservations import PRIORITY_CLASS

RESERVATIONS = "reservations"
# In each team's namespace, from deploy/reservations: to hold reserved GPUs.
FOR_RESERVATIONS = {("batch", "jobs"): ("create",)}


async def reservations(cluster: KubernetesClient, settings: Settings, config: Config) -> list[Finding]:
    """Probe permissions, queues, and the lowest priority; nothing without `reservations: true`."""
    if not config.reservations:
        return []
    places = [team_queue(team.name, config) for team in config.teams]
    namespaces = {namespace or settings.k8s_namespace for namespace, queue in places if queue}
    if not namespaces:
        return [broken(RESERVATIONS, "no team has a queue", "set teams.NAME.queue, or remove reservations:")]
    fix = "kubectl -n {} apply -f deploy/reservations/rights.yaml"
    found = [await granted(cluster, each, FOR_RESERVATIONS, fix.format(each)) for each in sorted(namespaces)]
    return [*found, _lowest_priority(await cluster.list("WorkloadPriorityClass", ""))]


def _lowest_priority(classes: list[Manifest]) -> Finding:
    """Evaluate the class of placeholders: any other Workload of their queue must be able to preempt them."""
    values = {each["metadata"]["name"]: int(each["value"]) for each in classes}
    mine, fix = values.pop(PRIORITY_CLASS, None), "kubectl apply -f deploy/reservations/priority.yaml"
    if mine is None:
        return broken(RESERVATIONS, f"WorkloadPriorityClass {PRIORITY_CLASS} doesn't exist", fix)
    if mine >= min([0, *values.values()]):
        return broken(RESERVATIONS, f"WorkloadPriorityClass {PRIORITY_CLASS} isn't the lowest", fix)
    return ok(RESERVATIONS, "GPUs can be reserved")
