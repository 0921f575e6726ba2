"""Check GPUs of Dynamic Resource Allocation: what is published, and whether profiles can claim it."""

from collections import Counter
from collections.abc import Iterable, Iterator

from bot.core.finding import Finding, broken, ok, warning
from bot.operate.check_cluster import listed_unless
from bot.platform.config.policy import Config
from bot.text.wording import counted, listed
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.nodes.devices import Devices, read_devices
from k8s.nodes.gpus import node_sizes
from k8s.objects import CLASS_PREFIX, GPU, Manifest

CHECK = "GPU device classes"
GRANT = "kubectl apply -k deploy/usage"
DRIVER = "gpu.nvidia.com"  # publishes the GPUs that device plugins offer
PAGE = "docs/machines.md#claim-gpus-by-a-deviceclass"


async def device_classes(cluster: KubernetesClient, config: Config, *, prometheus: bool) -> list[Finding]:
    """Return no findings where nothing is published, as before Kubernetes 1.34. Raises ApiError.

    `prometheus`: PROMETHEUS_URL is set; deploy/usage can be left out then.
    """
    claiming = [each.name for each in config.profiles if each.device_class]
    try:
        slices = await listed_unless(404, cluster, "ResourceSlice")
        classes = await listed_unless(404, cluster, "DeviceClass") or []
        claims = slices and await cluster.list("ResourceClaim", "")
        nodes = slices and await cluster.list("Node", "")
    except ApiError as error:
        if error.status != 403:
            raise
        return [warning(CHECK, "unknown: no permission", GRANT)] if claiming or not prometheus else []
    if slices is None and claiming:
        what = "this cluster doesn't serve resource.k8s.io/v1, as Kubernetes does from 1.34 on"
        return [broken(CHECK, what, f"remove device_class from {listed(claiming)} under profiles:")]
    devices = read_devices(classes, slices or (), claims or ())
    found = [*_profiles(devices, config), *_published(devices), *_offered_twice(devices, nodes or ())]
    offered = {each.of.resource for each in devices.known.values()}
    if offered and not config.profiles and GPU not in offered.union(*map(node_sizes, nodes or ())):
        fix = f"add a profile with device_class: {PAGE}"
        found.append(broken(CHECK, f"without profiles:, trials request {GPU}, which no node offers", fix))
    if claims and devices.known and prometheus:
        what = "kube-state-metrics doesn't count GPUs of ResourceClaims, so /gpus and digests miss them"
        found.append(warning(CHECK, what, f"leave PROMETHEUS_URL empty: {PAGE}"))
    return found


def _profiles(devices: Devices, config: Config) -> Iterator[Finding]:
    fix = "kubectl get deviceclasses  # then change profiles: in SWEEPBOT_CONFIG"
    for profile in config.profiles:
        one = devices.classes.get(profile.device_class)
        if profile.device_class and one is None:
            yield broken(CHECK, f"{profile.device_class} of profile {profile.name} doesn't exist", fix)
        elif one and one.resource != profile.requested:
            what = f"{one.name} offers its GPUs as {one.resource}"
            fix = f"in profile {profile.name}, replace device_class by resource: {one.resource}"
            yield broken(CHECK, what, fix)


def _published(devices: Devices) -> Iterator[Finding]:
    """Count the GPUs of each class; the selectors of some can't be read."""
    if unread := [name for name, each in devices.classes.items() if each.conditions is None]:
        what = f"GPUs of {listed(unread)} aren't counted: Sweepbot can't read the selectors"
        yield warning(CHECK, what, f"write them as in {PAGE}")
    for name in devices.distant:
        what = f"GPUs of {name} that several nodes can reach aren't counted; sweeps with it always fit"
        yield warning(CHECK, what, f"read {PAGE}")
    units = {each.unit: each for each in devices.known.values()}.values()
    for name, number in Counter(each.of.name for each in units).items():
        resource = devices.classes[name].resource
        how = f"device_class: {name}" if resource == CLASS_PREFIX + name else f"resource: {resource}"
        yield ok(CHECK, f"{name} has {counted(number, 'GPU')}; a profile names them by `{how}`")


def _offered_twice(devices: Devices, nodes: Iterable[Manifest]) -> Iterator[Finding]:
    """Report nodes whose GPUs NVIDIA's device plugin and its driver offer under different names."""
    published = {
        each.node
        for each in devices.known.values()
        if each.unit[0] == DRIVER and each.of.resource.startswith(CLASS_PREFIX)
    }
    names = [node["metadata"]["name"] for node in nodes if node_sizes(node)]
    if both := [name for name in names if name in published]:
        what = f"a device plugin and {DRIVER} both offer the GPUs of {listed(both)}: they count twice, and"
        fix = f"turn one of them off: {PAGE}"
        yield warning(CHECK, f"{what} two pods can get the same one", fix)
