"""Read Kueue's Workloads (their conditions, messages as Kueue wrote them, and place in the queue), and build
the patches that move a queued Job, or change its priority.

Kueue suspends a Job in a queue and creates a Workload for it. While the Job is suspended, its labels for the
queue and the priority can change; its webhook rejects that for an admitted Job, but from 0.15 on only for the
queue. `spec.active: false` keeps a Workload out of the queue. Measured with Kueue 0.14.8; 0.19 has more
reasons for the same conditions.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

from k8s.api.client import KubernetesClient, Manifests
from k8s.api.errors import ApiError
from k8s.nodes.gpus import GPU_RESOURCE, device_sizes
from k8s.objects import SWEEP_LABEL, Manifest, condition, parse_time, true_conditions
from k8s.trial_kinds import owner_of

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
# A LocalQueue of this name captures every Job of its namespace, and from Kueue 0.16 on every Deployment
DEFAULT = "default"
PREEMPTOR = re.compile(r"JobUID: ([0-9a-f-]{36})\b")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One queued or admitted Job."""

    name: str
    namespace: str
    job: str  # the Job's name; a trial's Job has the trial's name
    job_uid: str
    sweep: str = ""  # "": not a trial of Sweepbot
    queue: str = ""
    priority: int = 0
    priority_class: str = ""
    gpus: int = 0
    devices: Mapping[str, int] = field(default_factory=dict)  # of all pods, such as GPUs, by resource
    flavors: Mapping[str, str] = field(default_factory=dict)  # by resource, of what has quota
    active: bool = True
    reserved: bool = False  # it has quota; admission checks can keep it from starting
    admitted: bool = False
    finished: bool = False
    created: datetime | None = None
    waits: str = ""  # the message of QuotaReserved while it is False
    reason: str = ""  # of that condition
    checks: str = ""  # what an admitted-by-quota Workload still waits for
    eviction: tuple[str, str] = ("", "")  # reason and message of the last eviction, while it lasts

    @property
    def waiting(self) -> bool:
        return not self.admitted and not self.finished

    @property
    def preemptor(self) -> str:
        """UID of the Job that preempted it; "" if it wasn't preempted."""
        found = PREEMPTOR.search(self.eviction[1]) if self.eviction[0] == "Preempted" else None
        return found[1] if found else ""


def read_workload(obj: Manifest) -> Workload:
    meta, spec = obj["metadata"], obj.get("spec", {})
    true_now, waiting = true_conditions(obj), condition(obj, "QuotaReserved", "False")
    evicted = true_now.get("Evicted", {})
    devices = _devices(spec.get("podSets") or ())
    return Workload(
        name=meta["name"],
        namespace=meta.get("namespace", ""),
        job=owner_of(obj).get("name", ""),
        job_uid=meta.get("labels", {}).get(JOB_UID_LABEL, ""),
        sweep=_pod_labels(spec).get(SWEEP_LABEL, ""),
        queue=spec.get("queueName", ""),
        priority=int(spec.get("priority") or 0),
        priority_class=_priority_class(spec),
        gpus=sum(size for name, size in devices.items() if GPU_RESOURCE.fullmatch(name)),
        devices=devices,
        flavors=_flavors(obj),
        active=spec.get("active", True),
        reserved="QuotaReserved" in true_now,
        admitted="Admitted" in true_now,
        finished="Finished" in true_now,
        created=parse_time(meta.get("creationTimestamp")),
        waits=waiting.get("message", ""),
        reason=waiting.get("reason", ""),
        checks=_checks(obj) if "QuotaReserved" in true_now else "",
        eviction=(evicted.get("reason", ""), evicted.get("message", "")),
    )


def unfinished(obj: Manifest) -> bool:
    """Return whether a Workload hasn't finished. Kueue keeps finished ones with their Jobs, for days."""
    return "Finished" not in true_conditions(obj)


def has_fitting_flavor(words: str) -> bool:
    """Return whether a message names a flavor that fits the Workload once others release quota or nodes."""
    return "unused quota" in words or 'topology "' in words


def queue_order(workloads: Iterable[Workload]) -> list[Workload]:
    """Return those that wait for quota in the order in which Kueue tries them: by priority, then by creation.

    A preempted Workload keeps its place. One that ran into a timeout goes to the end, which isn't read here:
    Kueue's own order comes from its visibility API.
    """
    waiting = [each for each in workloads if each.waiting and each.active and not each.reserved]
    return sorted(waiting, key=lambda w: (-w.priority, str(w.created), w.name))


def places(pending: Iterable[Manifest]) -> dict[str, int]:
    """Return the place in the ClusterQueue by Workload, from 0, of what the visibility API returned."""
    return {each["metadata"]["name"]: int(each.get("positionInClusterQueue", 0)) for each in pending}


def job_labels(queue: str, priority_class: str) -> dict[str, str]:
    """Return the labels of a trial's Job; of an empty value none."""
    labels = {QUEUE_LABEL: queue, PRIORITY_LABEL: priority_class}
    return {label: value for label, value in labels.items() if value}


def relabeled(labels: Mapping[str, str]) -> Manifest:
    """Return the patch of a Job's labels."""
    return {"metadata": {"labels": dict(labels)}}


def prioritized(value: int) -> Manifest:
    """Return the patch of a Workload's own priority, which is mutable also once it is admitted."""
    return {"spec": {"priority": value}}


def activated(*, active: bool) -> Manifest:
    """Return the patch that takes a Workload out of its queue, or puts it back."""
    return {"spec": {"active": active}}


def _priority_class(spec: Manifest) -> str:
    """Return the class's name: v1beta2 has it in a reference."""
    ref = spec.get("priorityClassRef") or {}
    return str(ref.get("name") or spec.get("priorityClassName") or "")


def _pod_labels(spec: Manifest) -> Mapping[str, str]:
    pods: list[Manifest] = spec.get("podSets") or [{}]
    labels: Mapping[str, str] = pods[0].get("template", {}).get("metadata", {}).get("labels") or {}
    return labels


def _devices(sets: Iterable[Manifest]) -> dict[str, int]:
    found = Counter[str]()
    for pods in sets:
        count = int(pods.get("count", 1))
        sizes = device_sizes(pods.get("template", {}).get("spec", {}))
        found.update({name: size * count for name, size in sizes.items()})
    return dict(found)


def _flavors(obj: Manifest) -> dict[str, str]:
    sets = (obj.get("status", {}).get("admission") or {}).get("podSetAssignments") or ()
    return {name: flavor for each in sets for name, flavor in (each.get("flavors") or {}).items()}


def _checks(obj: Manifest) -> str:
    """Return what unfinished admission checks report, such as a provisioning request."""
    checks = obj.get("status", {}).get("admissionChecks") or ()
    return "; ".join(c.get("message") or c["name"] for c in checks if c.get("state") != "Ready")


async def pending_workloads(cluster: KubernetesClient, namespace: str, queue: str) -> Manifests | None:
    """Return a LocalQueue's pending Workloads from Kueue's visibility API, in order; None without it.

    Kueue 0.14 serves v1beta1, 0.15 and newer v1beta2. Raises ApiError and UnreachableError.
    """
    for version in ("v1beta2", "v1beta1"):
        root = f"/apis/visibility.kueue.x-k8s.io/{version}/namespaces/{namespace}"
        try:
            return (await cluster.read(f"{root}/localqueues/{quote(queue)}/pendingworkloads"))["items"] or []
        except ApiError as error:
            if error.status not in {403, 404, 503}:
                raise
    return None
