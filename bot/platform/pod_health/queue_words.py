"""Understand Kueue's messages about a Workload: whether it waits or can never start, for want of quota, a
stopped or missing queue, flavors, topology. Pure.
"""

import re

from k8s.kueue import Workload, has_fitting_flavor
from k8s.objects import GPU

_LACKS = re.compile(r"unused quota for (\S{1,300}) in flavor (\S{1,300}), (\S{1,40}) more needed")
NEVER = re.compile(
    r"insufficient quota for (\S{1,300}) in flavor (\S{1,300}), .{0,300}?"
    r"maximum capacity \((?:[^()]{1,200} > )?([^\s()]{1,40})\)"  # an older Kueue ends with `(24 > 16)`
)
NO_QUOTA_FOR = re.compile(r"resource (\S{1,300}) unavailable in ClusterQueue")
STOPPED = re.compile(r"(?:Local|Cluster)Queue (\S{1,300}) is (?:inactive|stopped)")
NO_QUEUE = re.compile(r"Queue \S{1,300} (?:doesn't exist|is terminating or missing|not found)")
# What no other trial's end changes; Kueue: pkg/scheduler/flavorassigner, pkg/workload/resources.go
REFUSALS = (
    (
        r"flavor \S{1,300} doesn't match node affinity",
        "no flavor of its queue has nodes that match its node selector",
    ),
    (r"untolerated taint .{1,300} in flavor", "it doesn't tolerate the taints of its queue's flavors"),
    (r"(?i)namespace doesn't match ClusterQueue selector", "its ClusterQueue doesn't accept this namespace"),
    (r"LimitRange constraints", "its pods violate the namespace's LimitRange"),
    (r"resources validation failed", "its pods request more than their limits"),
    (r"flavor \S{1,300} not found", "its queue uses a flavor that doesn't exist"),
    (
        r'Flavor "[^"]{1,253}" (?:does not|supports only|information missing)|no requested topology level',
        "no flavor of its queue fits its request for a topology",
    ),
    (
        r"DRA resources but|not support use of resource claims|not mapped in DRA configuration",
        "Kueue isn't configured for the DeviceClass that it requests",
    ),
)
# Kueue 0.18 and newer name only a reason if an equal Workload of the queue has just been refused
_BYPASSED = "an equivalent workload recently failed"
_NEVER_BY_REASON = {
    "ExceedsMaxQuota": "its queue's quota is too small for it",
    "NoMatchingFlavor": "no flavor of its queue fits it",
}
_WAITS_BY_REASON = {
    "WaitingForQuota": "needs more quota",
    "TopologyPlacementFailed": "the nodes of its queue's topology have no room for all its pods",
}
_NO_ROOM = re.compile(r'topology "([^"]{1,253})" (?:doesn\'t allow|allows) to fit')
MAX_WORDS = 200  # characters of a message that isn't known


def resource_name(resource: str, number: str) -> str:
    return resource if resource != GPU else "GPU" if number == "1" else "GPUs"


def lacking(words: str) -> tuple[str, str, str] | None:
    """Return resource, flavor, and number that are missing for the whole Workload; None if nothing is.

    Kueue names each pod set that doesn't fit; the number of a later one includes those before it.
    """
    found: list[tuple[str, str, str]] = _LACKS.findall(words)
    return next((each for each in reversed(found) if each[:2] == found[0][:2]), None)


def is_bypassed(words: str) -> bool:
    """Return whether a message doesn't say what is missing, because that of an equal Workload does."""
    return _BYPASSED in words


def waits(words: str, reason: str) -> str:
    """Return a clause for what others can release, but not how much of what; "" if it isn't known."""
    return _WAITS_BY_REASON.get(reason, "") if is_bypassed(words) else no_room(words)


def no_room(words: str) -> str:
    """Return a clause if the quota suffices, but not the nodes of Kueue's topology; else ""."""
    found = _NO_ROOM.search(words)
    return f"the nodes of topology {found[1]} have no room for all its pods" if found else ""


def refused(words: str, reason: str) -> str:
    """Return why a Workload can't start as it is; "" if it can, or it isn't known."""
    if is_bypassed(words):
        return _NEVER_BY_REASON.get(reason, "")
    if has_fitting_flavor(words):
        return ""
    return next((why for pattern, why in REFUSALS if re.search(pattern, words)), "")


def fits_quota(workload: Workload) -> bool:
    """Return whether a Workload waits for quota that it can get at some time, or for its admission checks."""
    words = workload.waits
    never = "maximum capacity" in words or bool(refused(words, workload.reason))
    never = never or any(each.search(words) for each in (NO_QUOTA_FOR, NO_QUEUE, STOPPED))
    return workload.waiting and workload.active and (has_fitting_flavor(words) or not never)


def why_waiting(workload: Workload) -> str:
    """Return a clause such as "needs 2 more GPUs in gpu-a100"; "" if Kueue hasn't looked at it."""
    words = workload.waits
    if not workload.active:
        return "held: its Workload is inactive"
    if workload.checks:
        return f"has quota, but is waiting for machines: {workload.checks[:MAX_WORDS]}"
    if "Pending the preemption of" in words:
        return "waits for preempted trials to stop"
    if lacks := lacking(words):
        resource, flavor, number = lacks
        return f"needs {number} more {resource_name(resource, number)} in {flavor}"
    if (never := NEVER.search(words)) and not has_fitting_flavor(words):
        resource, flavor, number = never.groups()
        return f"can never start: the quota is {number} {resource_name(resource, number)} in {flavor}"
    if no_quota := NO_QUOTA_FOR.search(words):
        return f"can't start: the ClusterQueue has no quota for {no_quota[1]}"
    if why := refused(words, workload.reason):
        return f"can't start: {why}"
    if NO_QUEUE.search(words):
        return f"can't start: {words[:MAX_WORDS]}"
    if stopped := STOPPED.search(words):
        return f"its queue {stopped[1]} is stopped or misconfigured"
    return waits(words, workload.reason) or words[:MAX_WORDS]
