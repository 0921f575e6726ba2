"""Allocate devices of ResourceSlices to a pod's claims, as the scheduler's plugin does, in its simplest form.

Slices are of one node, and selectors compare the driver and attributes.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.pods import amount
from local.kubernetes.apiserver.store import Store

TOO_FEW = "cannot allocate all claims"
COMPARISON = re.compile(r"""device\.(\w+)(?:\['([^']+)'\]\.(\w+))? == '([^']*)'""")
Claims = list[Object]
Results = list[tuple[Object, list[Object]]]  # claims, and what is allocated to each
Id = tuple[str, str, str]  # driver, pool, and device
Counted = tuple[str, str]  # a set, and its counter


@dataclass(frozen=True)
class Device:
    address: Object
    fields: Object  # in the slice
    counters: dict[Counted, float]  # of its pool


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
    devices = {_id(each.address): each for each in _devices(store, node)}
    held = [_id(each) for claim in store.peek("ResourceClaim") for each in _results(claim) if _counts(each)]
    found: Results = []
    for claim in claims:
        mine = list(_results(claim))
        if any(_id(each) not in devices for each in mine):
            return None
        for request in () if mine else claim["spec"]["devices"]["requests"]:
            chosen = next(filter(None, (_chosen(store, devices, held, *way) for way in _ways(request))), None)
            if chosen is None:
                return None
            mine += chosen
            held += [_id(each) for each in chosen if _counts(each)]
        found.append((claim, mine))
    return found


def _counts(result: Object) -> bool:
    return not result.get("adminAccess")


def _ways(request: Object) -> Iterator[tuple[str, Object]]:
    """Yield the alternatives of a request, the preferred one first, each with its name in results."""
    if "exactly" in request:
        yield request["name"], request["exactly"]
    for each in request.get("firstAvailable", ()):
        yield f"{request['name']}/{each['name']}", each


def _chosen(
    store: Store, devices: dict[Id, Device], held: list[Id], name: str, wanted: Object
) -> list[Object] | None:
    class_ = store.find("DeviceClass", "", wanted["deviceClassName"])
    selectors = [*(class_["spec"] if class_ else {}).get("selectors", ()), *wanted.get("selectors", ())]
    fitting = [key for key, each in devices.items() if class_ and _matches(selectors, each)]
    is_admin, picked = wanted.get("adminAccess", False), list[Id]()
    number = len(fitting) if wanted["allocationMode"] == "All" else wanted["count"]
    for key in fitting:
        if len(picked) < number and (is_admin or _is_free(key, devices, [*held, *picked])):
            picked.append(key)
    if not picked or len(picked) < number:
        return None
    more = {"adminAccess": True} if is_admin else {}
    return [{"request": name, **devices[key].address, **more} for key in picked]


def _is_free(key: Id, devices: dict[Id, Device], held: list[Id]) -> bool:
    """Return whether nothing has the device, or so much of its counters that it doesn't fit any more."""
    used = defaultdict[Counted, float](float)
    for each in [*held, key]:
        if each in devices and each[:2] == key[:2]:
            for counter, size in _consumed(devices[each].fields).items():
                used[counter] += size
    own = _consumed(devices[key].fields)
    return key not in held and all(used[each] <= devices[key].counters[each] for each in own)


def _consumed(fields: Object, of: str = "consumesCounters", name: str = "counterSet") -> dict[Counted, float]:
    return {
        (each[name], counter): amount(size["value"])
        for each in fields.get(of, ())
        for counter, size in each["counters"].items()
    }


def _id(device: Object) -> Id:
    return device["driver"], device["pool"], device["device"]


def _devices(store: Store, node: str) -> Iterator[Device]:
    specs = [each["spec"] for each in store.peek("ResourceSlice") if each["spec"].get("nodeName") == node]
    for spec in specs:
        pool = spec["pool"]["name"]
        counters = dict[Counted, float]()
        for each in specs:
            if (each["driver"], each["pool"]["name"]) == (spec["driver"], pool):
                counters |= _consumed(each, "sharedCounters", "name")
        for device in spec.get("devices", ()):
            address = {"driver": spec["driver"], "pool": pool, "device": device["name"]}
            yield Device(address=address, fields=device, counters=counters)


def _matches(selectors: list[Object], device: Device) -> bool:
    attributes = device.fields.get("attributes", {})
    for selector in selectors:
        for term in selector["cel"]["expression"].split(" && "):
            kind, domain, name, value = COMPARISON.fullmatch(term).groups()  # type: ignore[union-attr]  # see above
            own = attributes.get(f"{domain}/{name}") or attributes.get(name, {}) if name else {}
            if (device.address["driver"] if kind == "driver" else own.get("string")) != value:
                return False
    return True


def reserve(store: Store, pod: Object, results: Results) -> None:
    """Write the allocation of each claim, and the pods that have it."""
    consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    for claim, mine in results:
        users = [*claim.get("status", {}).get("reservedFor", ()), consumer]
        store.set_status(claim, {"allocation": {"devices": {"results": mine}}, "reservedFor": users})
