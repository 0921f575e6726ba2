"""Read the log for `/sweep logs`: of the named trial, else of the one to look at first, with those of all its
workers; before the trials, the build's.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bot.core.errors import UserError
from bot.core.plan import Build
from bot.core.record import SweepRecord
from bot.platform.clients import Clients
from bot.platform.slack.mrkdwn import code
from bot.sweep.clients import SweepClients
from bot.sweep.decisions.commands import named
from bot.sweep.model.observation import Observation
from k8s import kaniko
from k8s.api.logs import WHOLE_LOG
from k8s.engine import Trial, TrialState
from k8s.objects import BUILD_LABEL, Manifest
from k8s.pods import Pod, read_pod

# The Job and the Training Operator delete pods that still run when the trial ends.
NO_POD = "(no log: the pod doesn't exist; Kubernetes deletes pods that are still running when the trial ends)"


@dataclass(frozen=True, kw_only=True)
class SweepLog:
    source: str  # whose `shown` is, as mrkdwn
    shown: str  # the log; of several workers, the one that failed first, else the first
    title: str  # of `whole`
    whole: str  # of several workers: all their logs, each below a heading, NO_POD for those without a pod
    file: str  # name of a file with `whole`
    trial: str = ""  # "": it is a build's


async def read_log(sweep: SweepRecord, seen: Observation, trial: str, clients: SweepClients) -> SweepLog:
    """Return the log of the trial with this name or end of a name; "": of the most interesting one.

    Raises UserError.
    """
    if not (seen.trials or trial):
        return await _of_build(sweep, clients)
    found = trial_of(sweep, seen, trial)
    pods = [pod for pod in seen.pods if pod.job == found.name]
    plan, what = sweep.plan, f"trial {code(found.name)}"
    if not pods or plan is None:
        raise UserError(
            f"No log for {what}: its {'pods were' if plan and plan.nodes > 1 else 'pod was'} deleted."
        )
    if plan.nodes > 1:
        return await worker_logs(found.name, pods, plan.experiment_ref.namespace, plan.nodes, clients)
    pod = pods[-1]
    log = await clients.tail(plan.experiment_ref.namespace, pod.name, pod.container, WHOLE_LOG)
    title = f"Full log of {what}"
    return SweepLog(source=what, shown=log, title=title, whole=log, file=f"{pod.name}.log", trial=found.name)


def trial_of(sweep: SweepRecord, seen: Observation, name: str) -> Trial:
    """Return the named trial; else one with a pod, preferring running, then failed, then the best.

    Raises UserError.
    """
    found = named(seen.trials, name)
    if name:
        if len(found) != 1:
            names = ", ".join(f"`{t.name}`" for t in seen.trials[:10]) or "none"
            where = f"exactly one trial of `{sweep.id}`"
            raise UserError(f"`{name}` doesn't match {where}. Trials: {names}.")
        return found[0]
    with_pod = {pod.job for pod in seen.pods}
    best = sweep.progress.best
    return max(
        seen.trials,
        key=lambda t: (
            t.name in with_pod,
            t.name in seen.running,
            t.state is TrialState.FAILED,
            best is not None and t.name == best.trial,
        ),
    )


async def _of_build(sweep: SweepRecord, clients: SweepClients) -> SweepLog:
    """Return the log of the build that failed, else of the last one that has a pod. Raises UserError."""
    found: list[tuple[Build, Manifest]] = []
    for build in reversed(sweep.plan.builds if sweep.plan else ()):
        labels = f"{BUILD_LABEL}={build.ref.name}"
        if pods := await clients.cluster.list("Pod", build.ref.namespace, labels=labels):
            found.append((build, pods[-1]))
    if not found:
        raise UserError(f"`{sweep.id}` has no logs yet.")
    # The dependencies can fail while the code is built beside them.
    build, obj = next(
        (each for each in found if each[1].get("status", {}).get("phase") == "Failed"), found[0]
    )
    pod = read_pod(obj, kaniko.BUILD_CONTAINER)
    container = pod.init_failed or kaniko.BUILD_CONTAINER
    log = await clients.home.tail(build.ref.namespace, pod.name, container, WHOLE_LOG)
    source = f"the build of the {build.role.label} of {code(sweep.id)}"
    title = f"Full log of {source}"
    return SweepLog(source=source, shown=log, title=title, whole=log, file=f"{pod.name}.log")


async def worker_logs(
    trial: str, pods: Sequence[Pod], namespace: str, nodes: int, clients: Clients
) -> SweepLog:
    """Return the ends of the logs, together as long as one whole log. `pods`: of one trial, at least one."""
    latest = {pod.index: pod for pod in pods}
    found = [latest[index] for index in sorted(latest)]
    lines = max(WHOLE_LOG // nodes, 1)
    tails = (clients.tail(namespace, pod.name, pod.container, lines) for pod in found)
    logs = dict(zip(sorted(latest), await asyncio.gather(*tails), strict=True))
    shown = _failed_first(found) or found[0]
    names = {pod.index: f", {pod.name}" for pod in found}
    parts = (
        f"==> Worker {index + 1} of {nodes}{names.get(index, '')} <==\n{logs.get(index, NO_POD)}"
        for index in range(nodes)
    )
    return SweepLog(
        source=f"trial {code(trial)}, worker {shown.index + 1} of {nodes}",
        shown=logs[shown.index],
        title=f"Logs of {f'{len(found)} of {nodes}' if len(found) < nodes else 'all'} workers of {trial}",
        whole="\n\n".join(parts),
        file=f"{trial}.log",
        trial=trial,
    )


def _failed_first(pods: Sequence[Pod]) -> Pod | None:
    failed = [pod for pod in pods if pod.exit and pod.exit[0] and pod.ended and not pod.deleted]
    return min(failed, key=lambda pod: str(pod.ended), default=None)
