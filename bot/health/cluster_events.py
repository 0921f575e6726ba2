"""Ask the cluster what explains an object that does not start: its events, and Kueue's Workload."""

from bot.clients import Clients
from k8s.client import Manifests
from k8s.errors import ApiError
from k8s.objects import Manifest


async def events_of(kind: str, namespace: str, name: str, clients: Clients) -> Manifests:
    about = {"kind": kind, "name": name}
    fields = f"involvedObject.kind={kind},involvedObject.name={name}"
    events = await clients.cluster.list("Event", namespace, fields=fields)
    return [event for event in events if about.items() <= event["involvedObject"].items()]


async def workload_of(job: Manifest | None, clients: Clients) -> Manifest | None:
    """The Workload of a suspended Job; None for any other, and without Kueue."""
    if job is None or not job["spec"].get("suspend"):
        return None
    labels = f"kueue.x-k8s.io/job-uid={job['metadata']['uid']}"
    return next(iter(await if_allowed("Workload", job["metadata"]["namespace"], clients, labels)), None)


async def if_allowed(kind: str, namespace: str, clients: Clients, labels: str = "") -> Manifests:
    """Not every installation has Kueue, or lets the bot see nodes: then less is known."""
    try:
        return await clients.cluster.list(kind, namespace, labels=labels)
    except ApiError as error:
        if not error.permanent:
            raise
        return []
