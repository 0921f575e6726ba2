"""Allocate devices of ResourceSlices to a pod's claims, as the scheduler's plugin does, in its simplest form.

Slices are of one node, requests are exact counts, and the selectors of a class compare driver and attributes.
"""

import re
from collections.abc import Iterator

from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.store import Store

TOO_FEW = "cannot allocate all claims"
COMPARISON = re.compile(r"""device\.(\w+)(?:\['([^']+)'\]\.(\w+))? == '([^']*)'""")
Claims = list[Object]
Results = list[tuple[Object, list[Object]]]  # claims, and what is allocated to each


def claims_of(store: Store, pod: Object) -> Claims | None:
    """Return the claims of a pod; None until all exist."""
    namespace = pod["metadata"]["namespace"]
    made = {
        each["name"]: each["resourceClaimName"] for each in pod["status"].get("resourceClaimStatuses", ())
    }
    names = [each.get("resourceClaimName") or made.get(each["name"], "") for each in _references(pod)]
    found = [store.get("ResourceClaim", namespace, name) if name else None for name in names]
    return None if None in found else [each for each in found if each]


def _references(pod: Object) -> list[Object]:
    found: list[Object] = pod["spec"].get("resourceClaims", [])
    return found


def allocated(store: Store, pod: Object) -> list[Object]:
    """Return the devices that a pod has."""
    return [each for claim in claims_of(store, pod) or () for each in _results(claim)]


def _results(claim: Object) -> list[Object]:
    found: list[Object] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return found


def allocate(store: Store, claims: Claims, node: str) -> Results | None:
    """Return what each claim gets on the node; None if too few devices are free there."""
    taken = {_id(each) for claim in store.peek("ResourceClaim") for each in _results(claim)}
    free = [each for each in _devices(store, node) if _id(each[0]) not in taken]
    found: Results = []
    for claim in claims:
        mine = list[Object]()
        for request in claim["spec"]["devices"]["requests"]:
            exact = request["exactly"]
            class_ = store.find("DeviceClass", "", exact["deviceClassName"])
            fitting = [each for each in free if class_ and _matches(class_, *each)][: exact["count"]]
            if len(fitting) < exact["count"]:
                return None
            free = [each for each in free if each not in fitting]
            mine += [{"request": request["name"], **device} for device, _ in fitting]
        found.append((claim, mine))
    return found


def _id(device: Object) -> tuple[str, str, str]:
    return device["driver"], device["pool"], device["device"]


def _devices(store: Store, node: str) -> Iterator[tuple[Object, Object]]:
    """Yield the address of each device of the node, and its attributes."""
    for each in store.peek("ResourceSlice"):
        spec = each["spec"]
        for device in spec.get("devices", ()) if spec.get("nodeName") == node else ():
            where = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
            yield where, device.get("attributes", {})


def _matches(class_: Object, device: Object, attributes: Object) -> bool:
    for selector in class_["spec"].get("selectors", ()):
        for term in selector["cel"]["expression"].split(" && "):
            kind, domain, name, value = COMPARISON.fullmatch(term).groups()  # type: ignore[union-attr]  # see above
            own = attributes.get(f"{domain}/{name}") or attributes.get(name, {}) if name else {}
            if (device["driver"] if kind == "driver" else own.get("string")) != value:
                return False
    return True


def reserve(store: Store, pod: Object, results: Results) -> None:
    """Write the allocation of each claim, and the pod that has it."""
    consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    for claim, mine in results:
        store.set_status(claim, {"allocation": {"devices": {"results": mine}}, "reservedFor": [consumer]})
