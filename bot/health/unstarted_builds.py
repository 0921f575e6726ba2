"""Diagnose a build Job whose container has not started."""

from bot.clients import Clients
from bot.health.cluster_events import find_workload, list_events
from bot.health.diagnosis import Diagnosis
from bot.health.evidence import TrialEvidence, event_time
from bot.health.rules_building import why_not_started
from k8s.api.client import Manifests
from k8s.objects import Manifest, Ref, still_live


async def diagnose_build(
    ref: Ref, job: Manifest | None, pods: Manifests, clients: Clients
) -> Diagnosis | None:
    """Return why the build Job `ref` with these pods has not started; None if nothing is wrong so far.

    Raises ApiError, UnreachableError.
    """
    pod = next((pod for pod in pods if still_live(pod)), None)
    kind, name = ("Pod", pod["metadata"]["name"]) if pod else ("Job", ref.name)
    events = await list_events(kind, ref.namespace, name, clients)
    evidence = TrialEvidence(
        now=clients.now(),
        metric="",
        gpus=0,
        experiment={},
        job=job,
        pod=pod,
        workload=await find_workload(job, clients),
        events=tuple(sorted(events, key=lambda event: str(event_time(event)))),
    )
    return why_not_started(evidence)
