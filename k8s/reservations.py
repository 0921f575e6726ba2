"""Placeholders of reservations: Jobs in a Kueue queue that hold a GPU each until something else needs it.

Kueue preempts them for any other Workload of the ClusterQueue: their WorkloadPriorityClass has the lowest
value. A preempted one waits in the queue, and returns by itself. If Sweepbot is down, each ends by itself:
activeDeadlineSeconds counts from its last start.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from k8s.kueue import PRIORITY_LABEL, QUEUE_LABEL
from k8s.nodes.gpu_pods import PLACEHOLDER_PREFIX
from k8s.objects import MANAGED_BY, RESTRICTED, TEAM_LABEL, Manifest

RESERVATION_LABEL = "sweepbot/reservation"  # on placeholders, their Workloads' pod templates, and their pods
PRIORITY_CLASS = "sweepbot-reservation"  # a WorkloadPriorityClass of deploy/reservations
TTL_SECONDS = 60  # after its end, for whoever looks
NUMBER = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True, kw_only=True)
class Placeholder:
    """A Job that holds a GPU, or waits to."""

    name: str
    uid: str
    reservation: str
    number: int
    suspended: bool


def placeholder_name(reservation: str, number: int) -> str:
    return f"{PLACEHOLDER_PREFIX}{reservation}-{number}"


def placeholder(
    name: str,
    namespace: str,
    *,
    reservation: str,
    team: str,
    queue: str,
    image: str,
    until: datetime,
    now: datetime,
    resource: str,
    placement: Mapping[str, Any],
) -> Manifest:
    """Build the Job.

    Args:
        resource: that a GPU, or a MIG slice, is requested as.
        placement: the part of a pod's spec that decides on which machines it can run.
    """
    labels = {MANAGED_BY: "sweepbot", RESERVATION_LABEL: reservation, TEAM_LABEL: team}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels | {QUEUE_LABEL: queue, PRIORITY_LABEL: PRIORITY_CLASS},
        },
        "spec": {
            "suspend": True,  # as Kueue's webhook would; without it, nothing must run outside the queue
            "activeDeadlineSeconds": max(60, round((until - now).total_seconds())),
            "ttlSecondsAfterFinished": TTL_SECONDS,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": labels}, "spec": _pod(image, resource, placement)},
        },
    }


def _pod(image: str, resource: str, placement: Mapping[str, Any]) -> Manifest:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **placement,
        "containers": [
            {
                "name": "placeholder",
                "image": image,
                # Nothing else: a ClusterQueue without a quota of CPUs admits no Workload that requests them.
                "resources": {"requests": {resource: "1"}, "limits": {resource: "1"}},
                "securityContext": RESTRICTED
                | {"readOnlyRootFilesystem": True, "runAsNonRoot": True, "runAsUser": 65535},
            }
        ],
    }


def read_placeholder(job: Manifest) -> Placeholder | None:
    """Return None for a Job that has RESERVATION_LABEL, but not the name of a placeholder: someone else's."""
    meta = job["metadata"]
    reservation, number = meta["labels"][RESERVATION_LABEL], meta["name"].rpartition("-")[2]
    if not NUMBER.fullmatch(number) or meta["name"] != placeholder_name(reservation, int(number)):
        return None
    return Placeholder(
        name=meta["name"],
        uid=meta["uid"],
        reservation=reservation,
        number=int(number),
        suspended=bool(job["spec"].get("suspend")),
    )
