"""Look into a build Job whose container has not started."""

from bot.before_building import why_not_started
from bot.evidence import events_of, workload_of
from bot.health import Diagnosis
from bot.outside import Outside
from bot.scene import Scene, said_at
from k8s.objects import BUILD_LABEL, Ref, still_live


async def look_into(ref: Ref, outside: Outside) -> Diagnosis | None:
    """What to tell of the build Job `ref`; None when nothing is wrong yet."""
    job = await outside.cluster.get(ref)
    pods = await outside.cluster.list("Pod", ref.namespace, labels=f"{BUILD_LABEL}={ref.name}")
    pod = next((pod for pod in pods if still_live(pod)), None)
    kind, name = ("Pod", pod["metadata"]["name"]) if pod else ("Job", ref.name)
    events = await events_of(kind, ref.namespace, name, outside)
    scene = Scene(
        now=outside.now(),
        metric="",
        gpus=0,
        experiment={},
        job=job,
        pod=pod,
        workload=await workload_of(job, outside),
        events=tuple(sorted(events, key=lambda event: str(said_at(event)))),
    )
    return why_not_started(scene)
