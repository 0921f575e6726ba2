"""Decide on which nodes a pod can run, as the scheduler does: node labels and taints. Pure."""

from collections.abc import Callable, Mapping

from k8s.nodes.machines import REQUIRED, untolerated
from k8s.objects import Manifest

Labels = Mapping[str, str]
PLACEMENT = ("nodeSelector", "affinity", "tolerations")  # the part of a pod's spec that chooses nodes

_OPERATORS: dict[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _number(value) > _number(values[0]),
    "Lt": lambda value, values: _number(value) < _number(values[0]),
}


def can_run(pod: Manifest, labels: Labels, taints: tuple[Manifest, ...], resource: str = "") -> bool:
    """Return whether a pod with this spec can run on a node with these labels and taints.

    A taint named like the requested resource doesn't count, because the admission plugin
    ExtendedResourceToleration can tolerate it.
    """
    if any(labels.get(key) != value for key, value in (pod.get("nodeSelector") or {}).items()):
        return False
    if any(taint["key"] != resource for taint in untolerated(pod, taints)):
        return False
    required = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    terms = required.get("nodeSelectorTerms") or () if required else None
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
