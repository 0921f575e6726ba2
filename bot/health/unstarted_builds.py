"""Look into a build Job whose container has not started."""

from bot.clients import Clients
from bot.health.cluster_events import events_of, workload_of
from bot.health.diagnosis import Diagnosis
from bot.health.evidence import TrialEvidence, said_at
from bot.health.rules_building import why_not_started
from k8s.objects import BUILD_LABEL, Ref, still_live


async def look_into(ref: Ref, clients: Clients) -> Diagnosis | None:
    """What to tell of the build Job `ref`; None when nothing is wrong yet."""
    job = await clients.cluster.get(ref)
    pods = await clients.cluster.list("Pod", ref.namespace, labels=f"{BUILD_LABEL}={ref.name}")
    pod = next((pod for pod in pods if still_live(pod)), None)
    kind, name = ("Pod", pod["metadata"]["name"]) if pod else ("Job", ref.name)
    events = await events_of(kind, ref.namespace, name, clients)
    evidence = TrialEvidence(
        now=clients.now(),
        metric="",
        gpus=0,
        experiment={},
        job=job,
        pod=pod,
        workload=await workload_of(job, clients),
        events=tuple(sorted(events, key=lambda event: str(said_at(event)))),
    )
    return why_not_started(evidence)
