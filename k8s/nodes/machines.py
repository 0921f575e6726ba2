"""Decide where a pod can run, or name what keeps it away: labels, taints that don't pass, and what a node, or
a machine of a scaled pool, has too little of. Pure.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from k8s.katib.pod_shape import PodShape
from k8s.katib.trial_pod import placement, requests
from k8s.objects import Manifest
from k8s.quantities import amount, any_amount

# Set by Kubernetes, clouds, autoscalers, and plugins while a node is away, new, or leaving.
PASSING_TAINTS = re.compile(
    r"node\.kubernetes\.io/|node\.cloudprovider\.kubernetes\.io/|node\.cluster\.x-k8s\.io/|karpenter\.sh/"
    r"|ToBeDeletedByClusterAutoscaler|aws-node-termination-handler/|cloud\.google\.com/impending-node-termination"
    r"|[\w.-]{1,253}/agent-not-ready"  # Cilium, and the CSI drivers of clouds
)
BLOCKING = {"NoSchedule", "NoExecute"}  # effects of taints
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
UNLIMITED = float("inf")
Amount = Fraction | float

Labels = Mapping[str, str]
PLACEMENT = ("nodeSelector", "affinity", "tolerations")  # the part of a pod's spec that chooses nodes


@dataclass(frozen=True, kw_only=True)
class Machine:
    name: str  # "node gpu-3", "pool h100"
    resources: Mapping[str, Amount]  # of one machine
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Manifest, ...] = ()
    uncounted: tuple[str, ...] = ()  # prefixes of resources of which it can have any number


def read_machine(node: Manifest) -> Machine:
    """Read a node, also one that is not ready or cordoned: it can come back.

    GPUs and other devices count by capacity, because a broken device, or one whose plugin restarts, isn't
    allocatable now and can be again.
    """
    status = node.get("status", {})
    devices = {name: size for name, size in status.get("capacity", {}).items() if "/" in name}
    sizes = {**status.get("allocatable", {}), **devices}
    return Machine(
        name=f"node {node['metadata']['name']}",
        resources={name: any_amount(str(size)) for name, size in sizes.items()},
        labels=node["metadata"].get("labels") or {},
        taints=tuple(node.get("spec", {}).get("taints") or ()),
    )


def lacking(shape: PodShape, gpus: int, machine: Machine) -> list[str]:
    """Return the resources of which an empty machine has too little for this trial."""
    needed = requests(shape, gpus)
    return [
        name
        for name, size in needed.items()
        if amount(size) > machine.resources.get(name, 0) and not name.startswith(machine.uncounted)
    ]


def unmatched(pod: Manifest, labels: Mapping[str, str]) -> list[str]:
    """Return the labels that a trial's spec requires of its node and these are not, as text."""
    selected = pod.get("nodeSelector") or {}
    wrong = [f"{key}={value}" for key, value in selected.items() if labels.get(key) != value]
    rules = [rule for term in _terms(pod) or () for rule in term["matchExpressions"]]  # of one term
    return wrong + [
        f"{rule['key']} in ({', '.join(rule['values'])})" for rule in rules if not _matches_rule(rule, labels)
    ]


def _terms(pod: Manifest) -> list[Manifest] | None:
    """Return the terms of which a node must match one; None if the pod's spec requires none."""
    required = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    return (required.get("nodeSelectorTerms") or []) if required else None


def untolerated(pod: Manifest, taints: tuple[Manifest, ...]) -> list[Manifest]:
    """Return the lasting taints that keep a pod with this spec away."""
    tolerations = pod.get("tolerations") or ()
    return [
        taint
        for taint in taints
        if taint["effect"] != "PreferNoSchedule"
        and not PASSING_TAINTS.match(taint["key"])
        and not any(tolerates(each, taint) for each in tolerations)
    ]


def tolerates(toleration: Manifest, taint: Manifest) -> bool:
    """Without a key, a toleration matches every key; without an effect, every effect."""
    key, effect = toleration.get("key") or taint["key"], toleration.get("effect") or taint["effect"]
    same = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
    return same and (key, effect) == (taint["key"], taint["effect"])


def barriers(shape: PodShape, gpus: int, machine: Machine) -> list[str]:
    """Return the labels and taints that keep this trial from a machine, whatever its size.

    A taint named like a requested resource doesn't count: clusters with the admission plugin
    ExtendedResourceToleration, such as GKE's, tolerate it by themselves.
    """
    pod = placement(shape, gpus)
    taints = [
        taint for taint in untolerated(pod, machine.taints) if taint["key"] not in requests(shape, gpus)
    ]
    return [f"missing label {each}" for each in unmatched(pod, machine.labels)] + [
        f"taint {taint['key']}" + (f"={taint['value']}" if taint.get("value") else "") for taint in taints
    ]


def fits(shape: PodShape, gpus: int, machine: Machine) -> bool:
    """Return whether this trial could run on the machine if nothing else did."""
    return not lacking(shape, gpus, machine) and not barriers(shape, gpus, machine)


def can_run(pod: Manifest, labels: Labels, taints: tuple[Manifest, ...], resource: str = "") -> bool:
    """Return whether a pod with this spec can run on a node with these labels and taints.

    A taint named like the requested resource doesn't count, because the admission plugin
    ExtendedResourceToleration can tolerate it.
    """
    if any(labels.get(key) != value for key, value in (pod.get("nodeSelector") or {}).items()):
        return False
    if any(taint["key"] != resource for taint in untolerated(pod, taints)):
        return False
    terms = _terms(pod)
    return terms is None or any(_matches(term, labels) for term in terms)


def _matches(term: Manifest, labels: Labels) -> bool:
    """Return whether a node matches all expressions of a term. A rule about its fields matches none."""
    if term.get("matchFields"):
        return False
    rules = term.get("matchExpressions") or ()
    return bool(rules) and all(_matches_rule(rule, labels) for rule in rules)


def _matches_rule(rule: Manifest, labels: Labels) -> bool:
    operator = _OPERATORS.get(rule.get("operator", ""))
    return operator is not None and operator(labels.get(rule["key"]), rule.get("values") or [""])


def _number(text: str | None) -> float:
    return float(text) if text and text.lstrip("-").isdecimal() else float("nan")


_OPERATORS: dict[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _number(value) > _number(values[0]),
    "Lt": lambda value, values: _number(value) < _number(values[0]),
}
