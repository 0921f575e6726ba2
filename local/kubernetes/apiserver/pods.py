"""Default and validate pod specs, alone or in a Job's template."""

import re
from collections.abc import Iterator

from local.kubernetes.apiserver.kinds import Cause, Object
from local.kubernetes.apiserver.schema import QUANTITY

JOB_DEFAULTS = {
    "parallelism": 1,
    "completions": 1,
    "backoffLimit": 6,
    "manualSelector": False,
    "suspend": False,
    "completionMode": "NonIndexed",
}
SPEC_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NOT_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
    f"regex used for validation is '{LABEL}')"
)
UNITS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", start=1)}


def complete_pod(spec: Object) -> None:
    """Set the defaults of a pod: those of any pod spec, and requests from limits."""
    complete_pod_spec(spec)
    for container in spec.get("containers", []):
        if limits := container["resources"].get("limits"):
            container["resources"]["requests"] = limits | container["resources"].get("requests", {})


def complete_pod_spec(spec: Object) -> None:
    """Set the defaults of a pod spec [03-job-create]."""
    for key, value in SPEC_DEFAULTS.items():
        spec.setdefault(key, value)
    spec.setdefault("securityContext", {})
    for container in (*spec.get("initContainers", []), *spec.get("containers", [])):
        tag = container.get("image", "").rpartition("/")[2].partition(":")[2]
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", "Always" if tag in ("", "latest") else "IfNotPresent")


def check_containers(path: str, spec: Object) -> Iterator[Cause]:
    """Return the errors of the containers below `path`."""
    if not spec.get("containers"):
        yield Cause.required(f"{path}.containers")
    longest = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= longest < 2**31:
        why = "must be between 1 and 2147483647, inclusive"
        yield Cause.value(f"{path}.activeDeadlineSeconds", longest, why)
    volumes = [volume.get("name") for volume in spec.get("volumes", [])]
    seen: set[str] = set()
    groups = ("initContainers", "containers")
    each = [(f"{path}.{group}[{i}]", c) for group in groups for i, c in enumerate(spec.get(group, []))]
    for where, container in each:
        yield from _name(f"{where}.name", container.get("name", ""), seen)
        if not container.get("image"):
            yield Cause.required(f"{where}.image")
        for at, mount in enumerate(container.get("volumeMounts", [])):
            if mount.get("name") not in volumes:
                missing = f'Not found: "{mount.get("name", "")}"'
                yield Cause(f"{where}.volumeMounts[{at}].name", missing, "FieldValueNotFound")
        yield from _resources(f"{where}.resources", container["resources"])


def _name(path: str, name: str, seen: set[str]) -> Iterator[Cause]:
    if not name:
        yield Cause.required(path)
    elif len(name) > 63:
        yield Cause.value(path, name, "must be no more than 63 bytes")
    elif not re.fullmatch(LABEL, name):
        yield Cause.value(path, name, NOT_LABEL)
    elif name in seen:
        yield Cause(path, f'Duplicate value: "{name}"', "FieldValueDuplicate")
    seen.add(name)


def _resources(path: str, resources: Object) -> Iterator[Cause]:
    """Check extended resources ("/" in the name): their requests must equal their limits."""
    limits = resources.get("limits", {})
    for name, requested in resources.get("requests", {}).items():
        limit = limits.get(name)
        if limit is None and "/" in name:
            yield Cause.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif limit is not None and "/" in name and amount(requested) != amount(limit):
            yield Cause.value(f"{path}.requests", requested, f"must be equal to {name} limit of {limit}")
        elif limit is not None and amount(requested) > amount(limit):
            why = f"must be less than or equal to {name} limit of {limit}"
            yield Cause.value(f"{path}.requests", requested, why)


def amount(quantity: str) -> float:
    """Return a quantity as a number: `4Gi` is 4294967296.0, `500m` is 0.5."""
    number, unit = QUANTITY.fullmatch(quantity).groups()  # type: ignore[union-attr] # decoding saw to it
    return float(number) * UNITS[unit] if unit in UNITS else float(number + unit)
