"""Read the logs of all workers of a trial on several machines."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.clients import Clients
from k8s.api.logs import WHOLE_LOG
from k8s.pods import Pod

# The Job and the Training Operator delete pods that still run when the trial ends.
NO_POD = "(no log: the pod doesn't exist; Kubernetes deletes pods that still run when the trial ends)"


@dataclass(frozen=True, kw_only=True)
class WorkerLogs:
    shown: str  # `worker 3 of 4`: the one that failed first, else the first
    log: str  # its log
    title: str  # of `whole`: whose logs it has
    whole: str  # of all workers, each below a heading; NO_POD for those without a pod


async def worker_logs(pods: Sequence[Pod], namespace: str, nodes: int, clients: Clients) -> WorkerLogs:
    """Return the ends of the logs, together as long as one whole log. `pods`: of one trial, at least one."""
    latest = {pod.index: pod for pod in pods}
    found = [latest[index] for index in sorted(latest)]
    lines = max(WHOLE_LOG // nodes, 1)
    tails = (clients.tail(namespace, pod.name, pod.container, lines) for pod in found)
    logs = dict(zip(sorted(latest), await asyncio.gather(*tails), strict=True))
    shown = _failed_first(found) or found[0]
    return WorkerLogs(
        shown=f"worker {shown.index + 1} of {nodes}",
        log=logs[shown.index],
        title=f"Logs of {f'{len(found)} of {nodes}' if len(found) < nodes else 'all'} workers",
        whole="\n\n".join(
            f"==> {_name(index, nodes, latest)} <==\n{logs.get(index, NO_POD)}" for index in range(nodes)
        ),
    )


def _name(index: int, nodes: int, pods: Mapping[int, Pod]) -> str:
    pod = f", {pods[index].name}" if index in pods else ""
    return f"Worker {index + 1} of {nodes}{pod}"


def _failed_first(pods: Sequence[Pod]) -> Pod | None:
    failed = [pod for pod in pods if pod.exit and pod.exit[0] and pod.ended and not pod.deleted]
    return min(failed, key=lambda pod: str(pod.ended), default=None)
