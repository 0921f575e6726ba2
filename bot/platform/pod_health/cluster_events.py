"""Read what explains an object that doesn't start: its events, and Kueue's Workload."""

from collections.abc import Callable, Iterable

from bot.platform.clients import Clients
from k8s.api.client import Manifests
from k8s.api.errors import ApiError
from k8s.kueue import JOB_UID_LABEL, Workload, read_workload
from k8s.nodes.devices import with_claimable
from k8s.nodes.listed import list_devices
from k8s.objects import Manifest
from k8s.trial_kinds import is_suspended


async def list_events(kind: str, namespace: str, name: str, clients: Clients) -> Manifests:
    """Raises ApiError, UnreachableError."""
    target = {"kind": kind, "name": name}
    fields = f"involvedObject.kind={kind},involvedObject.name={name}"
    events = await clients.trials.list("Event", namespace, fields=fields)
    return [event for event in events if target.items() <= event["involvedObject"].items()]


async def rejected_replicas(namespace: str, deployment: str, clients: Clients) -> Manifests:
    """Return the events about rejected pods of a Deployment, whose ReplicaSets add a hash to its name."""
    fields = "involvedObject.kind=ReplicaSet,reason=FailedCreate"
    events = await clients.trials.list("Event", namespace, fields=fields)
    return [event for event in events if event["involvedObject"]["name"].rpartition("-")[0] == deployment]


async def find_workload(job: Manifest | None, clients: Clients) -> Manifest | None:
    """Return the Workload of a suspended Job; None for any other Job, and without Kueue."""
    if job is None or not is_suspended(job):
        return None
    labels = f"{JOB_UID_LABEL}={job['metadata']['uid']}"
    return next(iter(await list_if_allowed("Workload", job["metadata"]["namespace"], clients, labels)), None)


async def list_workloads(namespace: str, job_uids: Iterable[str], clients: Clients) -> list[Workload]:
    """Return the Workloads of these Jobs. Without Jobs, nothing is read."""
    if not (wanted := sorted(job_uids)):
        return []
    labels = f"{JOB_UID_LABEL} in ({','.join(wanted)})"
    return [read_workload(w) for w in await list_if_allowed("Workload", namespace, clients, labels)]


async def list_if_allowed(
    kind: str,
    namespace: str,
    clients: Clients,
    labels: str = "",
    only: Callable[[Manifest], bool] | None = None,
) -> Manifests:
    """Return an empty list where Kueue is not installed, or the bot has no permission."""
    try:
        return await clients.trials.list(kind, namespace, labels=labels, only=only)
    except ApiError as error:
        if not error.permanent:
            raise
        return []


async def nodes_if_allowed(clients: Clients) -> Manifests:
    """Return the nodes with the GPUs that pods can get; none without the permission to list nodes."""
    if not (nodes := await list_if_allowed("Node", "", clients)):
        return []
    return with_claimable(nodes, await list_devices(clients.trials))
