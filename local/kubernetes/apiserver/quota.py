"""Enforce ResourceQuotas, as the admission plugin of a real API server does.

Only pods are counted: their number, requests, and limits. The messages are the real plugin's
[06-job-over-pod-quota-events, 06-job-403-quota], which names only the exceeded resources.
"""

from collections.abc import Mapping

from local.kubernetes.apiserver.kinds import KINDS, Object, refusal
from local.kubernetes.apiserver.pods import UNITS, amount

COMPUTE = ("cpu", "memory")  # a quota of these requires them of every container


def check(quotas: list[Object], pods: list[Object], pod: Object) -> None:
    """Raise Refused (403) if the pod would exceed a quota."""
    for quota in quotas:
        hard = {name: str(most) for name, most in quota["spec"].get("hard", {}).items()}
        _specified(quota, pod, hard)
        requested = {name: _sum(pod, name) for name in hard}
        used = {name: sum(_sum(other, name) for other in pods) for name in hard}
        over = [
            name
            for name in sorted(hard)
            if requested[name] and requested[name] + used[name] > amount(hard[name])
        ]
        if over:
            parts = (("requested", _shown(requested, over)), ("used", _shown(used, over)))
            differences = [f"{word}: {text}" for word, text in parts]
            limited = ",".join(f"{name}={hard[name]}" for name in over)
            raise _forbidden(
                pod, f"exceeded quota: {_name(quota)}, {', '.join(differences)}, limited: {limited}"
            )


def _specified(quota: Object, pod: Object, hard: Mapping[str, str]) -> None:
    missing = []
    for name in sorted(hard):
        which, _, resource = name.rpartition(".")
        lacks = [
            c["name"]
            for c in pod["spec"]["containers"]
            if resource not in c["resources"].get(which or "requests", {})
        ]
        if resource in COMPUTE and lacks:
            missing.append(f"{name} for: {','.join(sorted(lacks))}")
    if missing:
        raise _forbidden(pod, f"failed quota: {_name(quota)}: must specify {'; '.join(missing)}")


def _sum(pod: Object, name: str) -> float:
    """Return the pod's use of a limit: `pods`, `requests.memory`, `limits.cpu`, or `memory` (a request)."""
    if name == "pods":
        return 1.0
    which, _, resource = (
        name.partition(".") if name.startswith(("requests.", "limits.")) else ("requests", "", name)
    )
    sizes = [c["resources"].get(which, {}) for c in pod["spec"]["containers"]]
    return sum(amount(str(size[resource])) for size in sizes if resource in size)


def _shown(amounts: Mapping[str, float], over: list[str]) -> str:
    return ",".join(f"{name}={_quantity(amounts[name], name)}" for name in over)


def _quantity(value: float, name: str) -> str:
    if value != int(value):
        return f"{round(value * 1000)}m"
    units = ("Ti", "Gi", "Mi", "Ki") if name.endswith("memory") or "storage" in name else ()
    unit = next((unit for unit in units if value and value % UNITS[unit] == 0), "")
    return f"{int(value / UNITS.get(unit, 1))}{unit}"


def _name(quota: Object) -> str:
    return str(quota["metadata"]["name"])


def _forbidden(pod: Object, why: str) -> Exception:
    name, kind = pod["metadata"]["name"], KINDS["Pod"]
    return refusal(403, f'pods "{name}" is forbidden: {why}', "Forbidden", kind.details(name))
