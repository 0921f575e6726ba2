"""Default and validate ResourceClaims and their templates, as in kubernetes' pkg/apis/resource/validation."""

import re
from collections.abc import Iterator

from local.kubernetes.apiserver.kinds import Cause, Object
from local.kubernetes.apiserver.pods import LABEL, NOT_LABEL

SPECS = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}  # where the claim is
ONE_OF = "exactly one of `exactly` or `firstAvailable` is required"


def requests_of(obj: Object) -> list[Object]:
    for key in SPECS[obj["kind"]]:
        obj = obj.get(key, {})
    found: list[Object] = obj.get("devices", {}).get("requests", [])
    return found


def complete_claim(obj: Object) -> None:
    for request in requests_of(obj):
        for each in (request.get("exactly"), *request.get("firstAvailable", ())):
            if each is not None and each.setdefault("allocationMode", "ExactCount") == "ExactCount":
                each.setdefault("count", 1)


def check_claim(obj: Object) -> Iterator[Cause]:
    names: set[str] = set()
    for at, request in enumerate(requests_of(obj)):
        path = f"{'.'.join(SPECS[obj['kind']])}.devices.requests[{at}]"
        name, ways = (
            request.get("name", ""),
            [key for key in ("exactly", "firstAvailable") if request.get(key)],
        )
        if not name:
            yield Cause.required(f"{path}.name")
        elif not re.fullmatch(LABEL, name):
            yield Cause.value(f"{path}.name", name, NOT_LABEL)
        if name in names:
            yield Cause(path, f'Duplicate value: "{name}"', "FieldValueDuplicate")
        names.add(name)
        if not ways:
            yield Cause.required(path, ONE_OF)
        elif len(ways) > 1:
            yield Cause(path, f"Invalid value: null: {ONE_OF}, but multiple fields are set")
        elif ways == ["exactly"]:
            yield from _exact(f"{path}.exactly", request["exactly"])


def _exact(path: str, request: Object) -> Iterator[Cause]:
    if not request.get("deviceClassName"):
        yield Cause.required(f"{path}.deviceClassName")
    if request["allocationMode"] == "ExactCount" and request["count"] <= 0:
        yield Cause.value(f"{path}.count", request["count"], "must be greater than zero")


def check_references(path: str, spec: Object) -> Iterator[Cause]:
    """Check a pod's claims, and which of them its containers use."""
    names = [each.get("name", "") for each in spec.get("resourceClaims", [])]
    for at, each in enumerate(spec.get("resourceClaims", [])):
        if not each.get("name"):
            yield Cause.required(f"{path}.resourceClaims[{at}].name")
        given = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if each.get(key)]
        if len(given) > 1:
            why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield Cause(f"{path}.resourceClaims[{at}]", f"Invalid value: {each}: {why}")
        elif not given:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield Cause(f"{path}.resourceClaims[{at}]", f"Invalid value: {each}: {why}")
    listed = f": {', '.join(sorted(names))}" if names else " which is empty"
    for number, container in enumerate(spec.get("containers", [])):
        for at, used in enumerate(container.get("resources", {}).get("claims", [])):
            if used.get("name") not in names:
                text = f'Not found: "{used.get("name", "")}": must be one of the names in '
                text += "pod.spec.resourceClaims"
                where = f"{path}.containers[{number}].resources.claims[{at}]"
                yield Cause(where, f"{text}{listed}", "FieldValueNotFound")
