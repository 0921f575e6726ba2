"""Check GPUs of Dynamic Resource Allocation: what is published, and whether profiles can claim it."""

from collections import Counter
from collections.abc import Iterator

from bot.core.finding import Finding, broken, ok, warning
from bot.operate.check_cluster import listed_unless
from bot.platform.config.policy import Config
from bot.text.wording import counted, listed
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.nodes.devices import Devices, read_devices
from k8s.objects import CLASS_PREFIX

CHECK = "GPU device classes"
GRANT = "kubectl apply -k deploy/usage"
PAGE = "docs/machines.md#claim-gpus-by-a-deviceclass"


async def device_classes(cluster: KubernetesClient, config: Config, *, prometheus: bool) -> list[Finding]:
    """Return no findings where nothing is published, as before Kubernetes 1.34. Raises ApiError.

    `prometheus`: PROMETHEUS_URL is set; deploy/usage can be left out then.
    """
    try:
        slices = await listed_unless(404, cluster, "ResourceSlice") or []
        classes = await listed_unless(404, cluster, "DeviceClass") or []
        claims = slices and await cluster.list("ResourceClaim", "")
    except ApiError as error:
        if error.status != 403:
            raise
        needed = not prometheus or any(each.device_class for each in config.profiles)
        return [warning(CHECK, "unknown: no permission", GRANT)] if needed else []
    devices = read_devices(classes, slices)
    found = [*_profiles(devices, config), *_published(devices)]
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
    units = {each.unit: each for each in devices.known.values()}.values()
    for name, number in Counter(each.of.name for each in units).items():
        resource = devices.classes[name].resource
        how = f"device_class: {name}" if resource == CLASS_PREFIX + name else f"resource: {resource}"
        yield ok(CHECK, f"{name} has {counted(number, 'GPU')}; a profile names them by `{how}`")
