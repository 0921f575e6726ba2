"""Read the logs of all workers of a trial on several machines."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bot.clients import Clients
from k8s.api.logs import WHOLE_LOG
from k8s.pods import Pod


@dataclass(frozen=True, kw_only=True)
class WorkerLogs:
    shown: str  # `worker 3 of 4`: the one that failed first, else the first
    log: str  # its log
    whole: str  # of all workers, each below a heading


async def worker_logs(pods: Sequence[Pod], namespace: str, nodes: int, clients: Clients) -> WorkerLogs:
    """Return the ends of the logs, together as long as one whole log. `pods`: of one trial, at least one."""
    latest = {pod.index: pod for pod in pods}
    found = [latest[index] for index in sorted(latest)]
    lines = max(WHOLE_LOG // nodes, 1)
    logs = await asyncio.gather(*(clients.tail(namespace, pod.name, pod.container, lines) for pod in found))
    headed = [
        f"==> Worker {pod.index + 1} of {nodes}, {pod.name} <==\n{log}"
        for pod, log in zip(found, logs, strict=True)
    ]
    shown = _failed_first(found) or found[0]
    return WorkerLogs(
        shown=f"worker {shown.index + 1} of {nodes}",
        log=logs[found.index(shown)],
        whole="\n\n".join(headed),
    )


def _failed_first(pods: Sequence[Pod]) -> Pod | None:
    failed = [pod for pod in pods if pod.exit and pod.exit[0] and pod.ended and not pod.deleted]
    return min(failed, key=lambda pod: str(pod.ended), default=None)
