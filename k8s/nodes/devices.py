"""Count GPUs of Dynamic Resource Allocation: ResourceSlices have them, ResourceClaims allocate them. Pure.

Nodes and pods don't list such devices. `with_devices` and `with_claims` add them under the name that a
DeviceClass has as a resource (kubernetes/enhancements, KEP-5004): its `extendedResourceName`, else
`CLASS_PREFIX` and its own. From there on they count like those of a device plugin.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from k8s.nodes.gpus import GPU_RESOURCE
from k8s.nodes.machines import BLOCKING
from k8s.objects import CLASS_PREFIX, Manifest

CONDITION = re.compile(
    r"device\.(?:driver|attributes\[(?P<q>['\"])(?P<domain>[^'\"]+)(?P=q)\]\.(?P<name>\w+))"
    r" *== *(?P<p>['\"])(?P<value>[^'\"]*)(?P=p)"
)
OF_REQUESTS = "resource.kubernetes.io/extended-resource-claim"  # annotation of the scheduler's own claims
DeviceId = tuple[str, str, str]  # driver, pool, and name
ClaimId = tuple[str, str]  # namespace and name


@dataclass(frozen=True, kw_only=True)
class DeviceClass:
    name: str
    resource: str
    conditions: Mapping[str, str] | None  # values by attribute, with its domain; None: in another form

    @property
    def names(self) -> tuple[str, ...]:
        """Return the resources by which pods can request its devices."""
        return tuple({self.resource, CLASS_PREFIX + self.name})


@dataclass(frozen=True, kw_only=True)
class Device:
    node: str  # "": more than one
    of: DeviceClass  # for which it counts: the one with the most conditions
    classes: tuple[DeviceClass, ...]  # by which it can be claimed
    usable: bool  # the scheduler can allocate it
    unit: DeviceId  # devices that share counters are ways to divide one GPU, which counts as one


@dataclass(frozen=True, kw_only=True)
class Devices:
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)  # those of GPUs, by name
    known: Mapping[DeviceId, Device] = field(default_factory=dict)
    claims: Mapping[ClaimId, "Claim"] = field(default_factory=dict)
    distant: tuple[str, ...] = ()  # classes with devices that several nodes can reach; these aren't known
    uncounted: tuple[str, ...] = ()  # prefixes of resources whose devices can't be listed or told apart


@dataclass(frozen=True, kw_only=True)
class Claim:
    pods: tuple[str, ...]  # that have reserved it
    sizes: Mapping[str, int]  # allocated GPUs by resource; before that, requested ones
    devices: tuple[DeviceId, ...] = ()  # allocated ones; of one that is shared, each share
    requested: bool = False  # the scheduler made it for a pod that requests a resource

    def rank(self, pod: str) -> tuple[int, str]:
        return (self.pods.index(pod) if pod in self.pods else len(self.pods), pod)


def read_class(manifest: Manifest) -> DeviceClass | None:
    """Return None for a class of which neither the name nor the `extendedResourceName` is one of GPUs.

    Its selectors are read in the form in which drivers write them: `device.driver == "gpu.nvidia.com" &&
    device.attributes["gpu.nvidia.com"].type == "gpu"`.
    """
    name, spec = manifest["metadata"]["name"], manifest.get("spec") or {}
    own = spec.get("extendedResourceName") or ""
    if not any(map(GPU_RESOURCE.fullmatch, (CLASS_PREFIX + name, own))):
        return None
    texts = [each.get("cel", {}).get("expression", "") for each in spec.get("selectors") or ()]
    terms = [CONDITION.fullmatch(term.strip()) for text in texts for term in text.split("&&")]
    found = {
        f"{each['domain']}/{each['name']}" if each["name"] else "": each["value"] for each in terms if each
    }
    return DeviceClass(
        name=name,
        resource=own if GPU_RESOURCE.fullmatch(own) else CLASS_PREFIX + name,
        conditions=found if all(terms) else None,
    )


def read_devices(
    classes: Iterable[Manifest], slices: Iterable[Manifest], claims: Iterable[Manifest] = ()
) -> Devices:
    """Return the GPUs of nodes, in each pool's newest generation, and what claims have of them.

    The scheduler allocates none of a pool of which a slice is missing. 8,000 GPUs and as many claims take
    0.3 seconds.
    """
    found = {each.name: each for each in filter(None, map(read_class, classes))}
    pools = defaultdict[tuple[str, str], list[Manifest]](list)
    for each in slices:
        pools[each["spec"]["driver"], each["spec"]["pool"]["name"]].append(each["spec"])
    read = dict[DeviceId, Device]()
    for specs in pools.values():
        newest = max(spec["pool"]["generation"] for spec in specs)
        current = [spec for spec in specs if spec["pool"]["generation"] == newest]
        complete = len(current) == current[0]["pool"]["resourceSliceCount"]
        for spec in current:
            read.update(_devices(spec, found.values(), complete=complete))
    distant = {of.name for each in read.values() if not each.node for of in each.classes}
    uncounted = [each for each in found.values() if each.conditions is None or each.name in distant]
    devices = Devices(
        classes=found,
        known=_by_units({key: each for key, each in read.items() if each.node}),
        distant=tuple(sorted(distant)),
        uncounted=tuple(name for each in uncounted for name in each.names),
    )
    return replace(devices, claims=dict(_read_claim(each, devices) for each in claims))


def _by_units(known: Mapping[DeviceId, Device]) -> dict[DeviceId, Device]:
    """Return all parts of a GPU as of the class of the whole GPU, which has the shortest name of these."""
    whole = dict[DeviceId, DeviceId]()
    for key, each in known.items():
        whole[each.unit] = min(whole.get(each.unit, key), key, key=lambda one: (len(one[2]), one))
    found = ((key, each, known[whole[each.unit]].of) for key, each in known.items())
    return {key: each if each.of is of else replace(each, of=of) for key, each, of in found}


def _devices(
    spec: Manifest, classes: Iterable[DeviceClass], *, complete: bool
) -> Iterator[tuple[DeviceId, Device]]:
    """Yield the GPUs of a slice, without a node if several can reach them.

    A GPU that its driver divides on demand is listed whole and in parts, which share its counters.
    """
    driver, pool = spec["driver"], spec["pool"]["name"]
    possible = [
        (each, [item for item in each.conditions.items() if item[0]])
        for each in classes
        if each.conditions is not None and each.conditions.get("", driver) == driver
    ]
    possible.sort(key=lambda pair: (-len(pair[0].conditions or ()), pair[0].name))
    for each in spec.get("devices") or ():
        facts = each.get("attributes") or {}
        fitting = tuple(of for of, rest in possible if all(_has(facts, driver, *one) for one in rest))
        if not fitting:
            continue
        tainted = any(taint["effect"] in BLOCKING for taint in each.get("taints") or ())
        counters = [one["counterSet"] for one in each.get("consumesCounters") or ()]
        yield (
            (driver, pool, each["name"]),
            Device(
                node=each.get("nodeName") or spec.get("nodeName") or "",
                of=fitting[0],
                classes=fitting,
                usable=complete and not tainted,
                unit=(driver, pool, min(counters, default=each["name"])),
            ),
        )


def _has(facts: Manifest, driver: str, name: str, value: str) -> bool:
    """Return whether a device has an attribute. Names without a domain are of the driver's."""
    found = facts.get(name) or facts.get(name.removeprefix(f"{driver}/")) or {}
    return found.get("string") == value


def with_devices(nodes: Iterable[Manifest], devices: Devices) -> list[Manifest]:
    """Return the nodes with their GPUs in `capacity`, and those that can be allocated in `allocatable`.

    A GPU of which claims have several parts, or shares, counts as so many, because the pods do.
    """
    units = {each.unit: each for each in sorted(devices.known.values(), key=lambda each: each.usable)}
    parts = Counter(
        devices.known[key].unit
        for claim in devices.claims.values()
        for key in claim.devices
        if key in devices.known
    )
    found = ((each, {each.of.resource}, max(1, parts[unit])) for unit, each in units.items())
    return _with_sizes(nodes, found)


def with_claimable(nodes: Iterable[Manifest], devices: Devices) -> list[Manifest]:
    """Return the nodes with the most GPUs that one claim of each class could ever get.

    A device of several classes counts for each, under both names of the class, and a GPU that is divided on
    demand for each of its parts.
    """
    found = devices.known.values()
    return _with_sizes(nodes, ((one, {name for of in one.classes for name in of.names}, 1) for one in found))


def _with_sizes(
    nodes: Iterable[Manifest], found: Iterable[tuple[Device, Iterable[str], int]]
) -> list[Manifest]:
    physical, usable = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
    for device, resources, number in found:
        for name in resources:
            physical[device.node][name] += number
            usable[device.node][name] += number * device.usable
    return [
        _with_status(node, capacity=physical[name], allocatable=usable[name])
        if (name := node["metadata"]["name"]) in physical
        else node
        for node in nodes
    ]


def _with_status(node: Manifest, **more: Mapping[str, int]) -> Manifest:
    """Of a resource that a device plugin offers, too, the scheduler gives only the plugin's devices.

    A plugin that was there leaves "0".
    """
    status = dict(node.get("status") or {})
    for key, sizes in more.items():
        before = status.get(key) or {}
        status[key] = before | {name: str(n) for name, n in sizes.items() if before.get(name, "0") == "0"}
    return {**node, "status": status}


def unclaimed(devices: Devices) -> Devices:
    """Return the devices without those that claims have, except claims for what pods request."""
    held = (key for claim in devices.claims.values() if not claim.requested for key in claim.devices)
    units = {devices.known[key].unit for key in held if key in devices.known}
    left = {key: each for key, each in devices.known.items() if each.unit not in units}
    return replace(devices, known=left)


def _read_claim(claim: Manifest, devices: Devices) -> tuple[ClaimId, Claim]:
    """Return a claim's GPUs. A device that isn't published now counts for the requested class.

    The access of an administrator allocates nothing.
    """
    meta, status, sizes = claim["metadata"], claim.get("status") or {}, Counter[str]()
    requests = {each["name"]: _exact(each) for each in claim["spec"].get("devices", {}).get("requests") or ()}
    wanted = {
        name: known.resource
        for name, each in requests.items()
        if (known := devices.classes.get(each.get("deviceClassName", ""))) and not each.get("adminAccess")
    }
    if "allocation" not in status:
        for name, resource in wanted.items():
            sizes[resource] += requests[name].get("count") or 1
    allocated = (status.get("allocation") or {}).get("devices", {}).get("results") or ()
    results = [each for each in allocated if not each.get("adminAccess")]
    keys = tuple((each["driver"], each["pool"], each["device"]) for each in results)
    for key, each in zip(keys, results, strict=True):
        device = devices.known.get(key)
        found = device.of.resource if device else wanted.get(each["request"].partition("/")[0])
        if found:
            sizes[found] += 1
    return (meta["namespace"], meta["name"]), Claim(
        pods=tuple(each["name"] for each in status.get("reservedFor") or () if each["resource"] == "pods"),
        sizes=sizes,
        devices=keys,
        requested=OF_REQUESTS in (meta.get("annotations") or {}),
    )


def _exact(request: Manifest) -> Manifest:
    """Return what is requested; of several alternatives, the preferred one."""
    found: Manifest = request.get("exactly") or next(iter(request.get("firstAvailable") or ()), {})
    return found


def with_claims(pods: Iterable[Manifest], devices: Devices) -> list[Manifest]:
    """Return the pods with the GPUs of their claims as requests of the first container that uses one.

    A claim that several of them share counts for the first that has reserved it, or else by name.
    """
    pods, claims = list(pods), devices.claims
    users = defaultdict[ClaimId, list[str]](list)
    for pod in pods:
        for key in _claimed(pod) & claims.keys():
            users[key].append(pod["metadata"]["name"])
    first = {key: min(names, key=claims[key].rank) for key, names in users.items()}
    return [_with_claims(pod, devices, first) for pod in pods]


def _claimed(pod: Manifest) -> set[ClaimId]:
    referred = (
        *(pod["spec"].get("resourceClaims") or ()),
        *(pod.get("status", {}).get("resourceClaimStatuses") or ()),
    )
    names = (each.get("resourceClaimName") for each in referred)
    return {(pod["metadata"]["namespace"], name) for name in names if name}


def _with_claims(pod: Manifest, devices: Devices, first: Mapping[ClaimId, str]) -> Manifest:
    sizes = Counter[str]()
    for key in _claimed(pod):
        if first.get(key) == pod["metadata"]["name"]:
            sizes.update(devices.claims[key].sizes)
    if not sizes:
        return pod
    containers = list(pod["spec"]["containers"])
    at = next((at for at, each in enumerate(containers) if each.get("resources", {}).get("claims")), 0)
    resources = containers[at].get("resources", {})
    own = {**resources.get("limits", {}), **resources.get("requests", {})}
    more = {name: str(int(own.get(name, 0)) + size) for name, size in sizes.items()}
    requests = {**resources.get("requests", {}), **more}
    containers[at] = {**containers[at], "resources": {**resources, "requests": requests}}
    return {**pod, "spec": {**pod["spec"], "containers": containers}}
