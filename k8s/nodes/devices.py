"""Count GPUs of Dynamic Resource Allocation: ResourceSlices have them, ResourceClaims allocate them. Pure.

Nodes and pods don't list such devices. `with_devices` and `with_claims` add them under the name that a
DeviceClass has as a resource (kubernetes/enhancements, KEP-5004): its `extendedResourceName`, else
`CLASS_PREFIX` and its own. From there on they count like those of a device plugin.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from k8s.nodes.gpus import GPU_RESOURCE
from k8s.objects import CLASS_PREFIX, Manifest

CONDITION = re.compile(
    r"device\.(?:driver|attributes\[(?P<q>['\"])(?P<domain>[^'\"]+)(?P=q)\]\.(?P<name>\w+))"
    r" *== *(?P<p>['\"])(?P<value>[^'\"]*)(?P=p)"
)
BLOCKING = {"NoSchedule", "NoExecute"}  # effects of taints
DeviceId = tuple[str, str, str]  # driver, pool, and name


@dataclass(frozen=True, kw_only=True)
class DeviceClass:
    name: str
    resource: str
    conditions: Mapping[str, str] | None  # values by attribute, with its domain; None: in another form


@dataclass(frozen=True, kw_only=True)
class Device:
    node: str
    of: DeviceClass
    usable: bool  # the scheduler can allocate it
    unit: DeviceId  # devices that share counters are ways to divide one GPU, which counts as one


@dataclass(frozen=True, kw_only=True)
class Devices:
    classes: Mapping[str, DeviceClass]  # those of GPUs, by name
    known: Mapping[DeviceId, Device]


@dataclass(frozen=True, kw_only=True)
class Claim:
    pods: tuple[str, ...]  # that have reserved it
    sizes: Mapping[str, int]  # allocated GPUs by resource; before that, requested ones


Claims = Mapping[tuple[str, str], Claim]  # by namespace and name


def read_class(manifest: Manifest) -> DeviceClass | None:
    """Return None for a class whose name isn't one of GPUs.

    Its selectors are read in the form in which drivers write them: `device.driver == "gpu.nvidia.com" &&
    device.attributes["gpu.nvidia.com"].type == "gpu"`.
    """
    name, spec = manifest["metadata"]["name"], manifest.get("spec") or {}
    if not GPU_RESOURCE.fullmatch(CLASS_PREFIX + name):
        return None
    own = spec.get("extendedResourceName") or ""
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


def read_devices(classes: Iterable[Manifest], slices: Iterable[Manifest]) -> Devices:
    """Return the GPUs of nodes, in each pool's newest generation.

    The scheduler allocates none of a pool of which a slice is missing.
    """
    found = {each.name: each for each in filter(None, map(read_class, classes))}
    pools = defaultdict[tuple[str, str], list[Manifest]](list)
    for each in slices:
        pools[each["spec"]["driver"], each["spec"]["pool"]["name"]].append(each["spec"])
    known, of = dict[DeviceId, Device](), dict[DeviceId, DeviceClass]()
    for pool, specs in pools.items():
        newest = max(spec["pool"]["generation"] for spec in specs)
        current = [spec for spec in specs if spec["pool"]["generation"] == newest]
        complete = len(current) >= current[0]["pool"]["resourceSliceCount"]
        for spec in current:
            for each in spec.get("devices") or ():
                if device := _device(each, spec, found.values(), complete=complete):
                    known[*pool, each["name"]] = device
                    of[device.unit] = min(of.get(device.unit, device.of), device.of, key=lambda one: one.name)
    return Devices(classes=found, known={key: replace(each, of=of[each.unit]) for key, each in known.items()})


def _device(
    device: Manifest, spec: Manifest, classes: Iterable[DeviceClass], *, complete: bool
) -> Device | None:
    """Return None for what isn't a GPU of one node.

    Of several classes, the one with the most conditions counts. A GPU that its driver divides on demand is
    listed whole and in parts, which share its counters.
    """
    driver, pool = spec["driver"], spec["pool"]["name"]
    facts = {"": driver} | {
        key if "/" in key else f"{driver}/{key}": value.get("string")
        for key, value in (device.get("attributes") or {}).items()
    }
    fitting = [
        (-len(each.conditions), each.name, each)
        for each in classes
        if each.conditions is not None and each.conditions.items() <= facts.items()
    ]
    node = device.get("nodeName") or spec.get("nodeName")
    if not (node and fitting):
        return None
    tainted = any(taint["effect"] in BLOCKING for taint in device.get("taints") or ())
    counters = [each["counterSet"] for each in device.get("consumesCounters") or ()]
    return Device(
        node=node,
        of=min(fitting)[2],
        usable=complete and not tainted,
        unit=(driver, pool, min(counters, default=device["name"])),
    )


def with_devices(nodes: Iterable[Manifest], devices: Devices) -> list[Manifest]:
    """Return the nodes with their GPUs in `capacity`, and those that can be allocated in `allocatable`."""
    units = {each.unit: each for each in sorted(devices.known.values(), key=lambda each: each.usable)}
    physical, usable = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
    for each in units.values():
        physical[each.node][each.of.resource] += 1
        usable[each.node][each.of.resource] += each.usable
    return [
        _with_sizes(node, capacity=physical[name], allocatable=usable[name])
        if (name := node["metadata"]["name"]) in physical
        else node
        for node in nodes
    ]


def _with_sizes(node: Manifest, **more: Mapping[str, int]) -> Manifest:
    status = dict(node.get("status") or {})
    for key, sizes in more.items():
        before = status.get(key) or {}  # a device plugin that was there leaves "0"
        status[key] = before | {name: str(int(before.get(name, 0)) + size) for name, size in sizes.items()}
    return {**node, "status": status}


def read_claim(claim: Manifest, devices: Devices) -> Claim:
    """Return a claim's GPUs. A device that isn't published now counts for the requested class."""
    requests = {each["name"]: _exact(each) for each in claim["spec"].get("devices", {}).get("requests") or ()}
    wanted = {
        name: known.resource
        for name, each in requests.items()
        if (known := devices.classes.get(each.get("deviceClassName", ""))) and not each.get("adminAccess")
    }
    status, sizes = claim.get("status") or {}, Counter[str]()
    if "allocation" not in status:
        for name, resource in wanted.items():
            sizes[resource] += requests[name].get("count") or 1
    for each in status.get("allocation", {}).get("devices", {}).get("results") or ():
        device = devices.known.get((each["driver"], each["pool"], each["device"]))
        found = device.of.resource if device else wanted.get(each["request"].partition("/")[0])
        if found and not each.get("adminAccess"):
            sizes[found] += 1
    pods = (each["name"] for each in status.get("reservedFor") or () if each["resource"] == "pods")
    return Claim(pods=tuple(pods), sizes=sizes)


def _exact(request: Manifest) -> Manifest:
    """Return what is requested; of several alternatives, the preferred one."""
    found: Manifest = request.get("exactly") or next(iter(request.get("firstAvailable") or ()), {})
    return found


def with_claims(pod: Manifest, claims: Claims) -> Manifest:
    """Return the pod with the GPUs of its claims as requests of the first container that uses one.

    A claim that several pods share counts for the first.
    """
    meta, spec = pod["metadata"], pod["spec"]
    referred = (
        *(spec.get("resourceClaims") or ()),
        *(pod.get("status", {}).get("resourceClaimStatuses") or ()),
    )
    names = {each["resourceClaimName"] for each in referred if each.get("resourceClaimName")}
    sizes = Counter[str]()
    for name in names:
        claim = claims.get((meta["namespace"], name))
        if claim and claim.pods[:1] in ((), (meta["name"],)):
            sizes.update(claim.sizes)
    if not sizes:
        return pod
    containers = list(spec["containers"])
    at = next((at for at, each in enumerate(containers) if each.get("resources", {}).get("claims")), 0)
    resources = containers[at].get("resources", {})
    requests = {**resources.get("requests", {}), **{name: str(size) for name, size in sizes.items()}}
    containers[at] = {**containers[at], "resources": {**resources, "requests": requests}}
    return {**pod, "spec": {**spec, "containers": containers}}
