"""Answer `/sweep queue` from Kueue's Workloads: each queue with what waits in it, in Kueue's order."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.core.sweep_summary import SweepSummary
from bot.core.work_item import QUEUE
from bot.platform.clients import Clients
from bot.platform.config.policy import all_namespaces, namespaces_in
from bot.platform.config.queues import QueuePolicy
from bot.platform.pod_health.cluster_events import list_if_allowed
from bot.platform.pod_health.queue_words import is_bypassed, why_waiting
from bot.platform.slack.mrkdwn import code, plain, quoted
from bot.text.wording import counted, fitting, printable
from k8s.api.errors import ApiError, UnreachableError
from k8s.kueue import Workload, pending_workloads, places, queue_order, read_workload, unfinished
from k8s.objects import GPU, Manifest
from k8s.quantities import any_amount

MAX_TEXT = 3_500  # characters; Slack recommends at most 4,000
NO_KUEUE = "No queue: Kueue isn't installed, or Sweepbot has no permission to list its Workloads."


@dataclass(frozen=True, kw_only=True)
class QueueView:
    """One LocalQueue as Kueue reports it."""

    name: str
    namespace: str
    workloads: tuple[Workload, ...]
    cluster_queue: str = ""
    order: Mapping[str, int] | None = None  # place in the ClusterQueue by Workload, from 0; None: unknown
    borrowed: int = 0  # GPUs that its ClusterQueue borrows
    cluster: str = ""  # name; "": the main cluster


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """Neighbors in the queue that are the same to a reader."""

    first: int  # place in the LocalQueue, from 1
    last: int
    workload: Workload
    trials: int
    behind: int = 0  # how many of the ClusterQueue's other LocalQueues are ahead of it
    above: str = ""  # the ClusterQueue, if its order is known


def queues_text(
    views: Sequence[QueueView],
    sweeps: Iterable[SweepSummary],
    policy: QueuePolicy,
    unreachable: Iterable[str] = (),
) -> str:
    """Return all queues, cut at Slack's limit. `unreachable`: the clusters whose queues are unknown."""
    unknown = [
        f":warning: Cluster {code(name)} doesn't answer, so its queues are unknown." for name in unreachable
    ]
    if not views:
        return "\n".join([*unknown, NO_KUEUE])
    owners = {each.id: each.user_name or each.user for each in sweeps}
    lines = [line for view in views for line in _lines(view, owners, policy)]
    return "\n".join(fitting([*unknown, *lines], MAX_TEXT))


def _lines(view: QueueView, owners: Mapping[str, str], policy: QueuePolicy) -> list[str]:
    running = [w for w in view.workloads if w.admitted and not w.finished]
    held = [w for w in view.workloads if w.waiting and not w.active]
    waiting = _ordered(view)
    starting = [w for w in view.workloads if w.waiting and w.active and w.reserved]
    apart = replace(view, order=None)
    gpus = counted(sum(w.gpus for w in running), "GPU")
    borrowed = f", {view.borrowed} of them borrowed" if view.borrowed else ""
    counts = f"{len(running)} running ({gpus}{borrowed}), {len(starting) + len(waiting)} waiting"
    place = f"{code(view.namespace)}{f' of cluster {code(view.cluster)}' if view.cluster else ''}"
    head = f"*Queue {code(view.name)}* in {place}: {counts}"
    return [
        head,
        *(f"{_who(entry, owners, policy)}{_why(entry)}" for entry in _merged(starting, apart)),
        *(_line(entry, owners, policy) for entry in _merged(waiting, view)),
        *(f"Held: {_who(entry, owners, policy)}" for entry in _merged(held, apart)),
    ]


def _ordered(view: QueueView) -> list[Workload]:
    """Return the waiting Workloads in Kueue's own order, else by priority and age."""
    found = queue_order(view.workloads)
    if view.order is None:
        return found
    places = view.order
    return sorted(found, key=lambda w: places.get(w.name, len(places)))


def _merged(workloads: Iterable[Workload], view: QueueView) -> list[_Entry]:
    """Merge neighbors of one sweep with the same priority and reason, and the same others ahead."""
    found: list[_Entry] = []
    for place, each in enumerate(workloads, 1):
        behind = max(0, (view.order or {}).get(each.name, 0) + 1 - place)
        last = found[-1] if found else None
        if last and each.sweep and last.behind == behind and _same(last.workload, each):
            shown = each if _is_vague(last.workload) else last.workload
            found[-1] = replace(last, last=place, workload=shown, trials=last.trials + 1)
        else:
            above = view.cluster_queue if view.order is not None else ""
            entry = _Entry(first=place, last=place, workload=each, trials=1, behind=behind, above=above)
            found.append(entry)
    return found


def _same(one: Workload, other: Workload) -> bool:
    facts = [(w.sweep, w.priority, w.gpus) for w in (one, other)]
    return facts[0] == facts[1] and len({why_waiting(w) for w in (one, other) if not _is_vague(w)}) < 2


def _is_vague(workload: Workload) -> bool:
    """Return whether only an equal Workload says what this one waits for: from Kueue 0.18 on, most."""
    return not workload.reserved and (not workload.waits or is_bypassed(workload.waits))


def _line(entry: _Entry, owners: Mapping[str, str], policy: QueuePolicy) -> str:
    places = f"{entry.first}." if entry.first == entry.last else f"{entry.first} to {entry.last}."
    return f"{places} {_who(entry, owners, policy)}{_behind(entry)}{_why(entry)}"


def _why(entry: _Entry) -> str:
    why = why_waiting(entry.workload)
    return f": {plain(printable(why))}" if why else ""


def _behind(entry: _Entry) -> str:
    """Return the place in the ClusterQueue, if other LocalQueues change it: their Workloads aren't listed."""
    if not entry.behind:
        return ""
    first, last = entry.first + entry.behind, entry.last + entry.behind
    place = f"place {first}" if first == last else f"places {first} to {last}"
    return f" ({place} in ClusterQueue {code(entry.above)}, behind {entry.behind} of other queues)"


def _who(entry: _Entry, owners: Mapping[str, str], policy: QueuePolicy) -> str:
    each = entry.workload
    priority = policy.priority_of(each.priority_class) or each.priority_class
    name = code(each.sweep or each.job or each.name)
    owner = quoted(owners[each.sweep], 80) if each.sweep in owners else ""
    size = f"{counted(entry.trials, 'trial')} × {counted(each.gpus, 'GPU')}" if each.sweep else ""
    size = size or counted(each.gpus, "GPU")
    return ", ".join(
        filter(None, (name, owner, size, f"priority {plain(printable(priority))}" if priority else ""))
    )


log = logging.getLogger(__name__)


async def answer_commands(_: str, clients: Clients) -> None:
    """Answer all waiting requests, with one read. Raises ApiError and UnreachableError."""
    commands = await clients.store.commands(str(QUEUE))
    if not commands:
        return
    views = [
        view
        for namespace in all_namespaces(clients.settings.k8s_namespace, clients.config)
        for view in await _queues(namespace, clients)
    ]
    elsewhere, unreachable = await _elsewhere(clients)
    sweeps, policy = await clients.store.listed(), clients.config.queueing
    # In a thread: twenty thousand waiting Workloads take half a second.
    text = clients.mask(await asyncio.to_thread(queues_text, views + elsewhere, sweeps, policy, unreachable))
    for command in commands:
        await clients.answer(command, str(QUEUE), text)


async def _elsewhere(clients: Clients) -> tuple[list[QueueView], list[str]]:
    """Return the queues of other clusters, and the names of clusters that don't answer."""
    views, unreachable = list[QueueView](), list[str]()
    for cluster in clients.clusters.all(clients.config):
        there, name = clients.of(cluster.config.name), cluster.config.name
        try:
            for namespace in namespaces_in(cluster.config, clients.settings.k8s_namespace, clients.config):
                views += [replace(view, cluster=name) for view in await _queues(namespace, there)]
        except (ApiError, UnreachableError) as error:
            log.warning("can't read the queues of cluster %s: %s", name, error)
            unreachable.append(name)
    return views, unreachable


async def _queues(namespace: str, clients: Clients) -> list[QueueView]:
    """Read each LocalQueue of a namespace; those without Workloads only if the configuration names them."""
    queues = {q["metadata"]["name"]: q for q in await list_if_allowed("LocalQueue", namespace, clients)}
    if not queues:
        return []
    above = {q["metadata"]["name"]: q for q in await list_if_allowed("ClusterQueue", "", clients)}
    workloads = await list_if_allowed("Workload", namespace, clients, only=unfinished)
    found = [read_workload(w) for w in workloads]
    named = {each.name for each in clients.config.queueing.queues} | {w.queue for w in found}
    return [
        await _view(name, queues[name], above, found, clients) for name in sorted(queues) if name in named
    ]


async def _view(
    name: str, queue: Manifest, above: Mapping[str, Manifest], found: list[Workload], clients: Clients
) -> QueueView:
    namespace = queue["metadata"]["namespace"]
    pending = await pending_workloads(clients.trials, namespace, name)
    return QueueView(
        name=name,
        namespace=namespace,
        workloads=tuple(w for w in found if w.queue == name and not w.finished),
        cluster_queue=queue["spec"]["clusterQueue"],
        order=None if pending is None else places(pending),
        borrowed=_borrowed(above.get(queue["spec"]["clusterQueue"], {})),
    )


def _borrowed(cluster_queue: Manifest) -> int:
    """Return the GPUs that a ClusterQueue borrows; 0 if unknown."""
    flavors = cluster_queue.get("status", {}).get("flavorsUsage") or ()
    return sum(
        int(any_amount(str(each.get("borrowed") or 0)))
        for flavor in flavors
        for each in flavor.get("resources") or ()
        if each["name"] == GPU
    )
