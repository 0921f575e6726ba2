"""List nodes and pods with their GPUs, those of ResourceSlices and ResourceClaims included.

Where these kinds aren't served, before Kubernetes 1.34, or can't be listed, only device plugins count.
"""

import asyncio
from dataclasses import replace

from k8s.api.client import KubernetesClient, Manifests
from k8s.api.errors import ApiError
from k8s.nodes.devices import Devices, read_devices, unclaimed, with_claimable, with_claims, with_devices
from k8s.nodes.gpu_pods import UNFINISHED_PODS, GpuPod, read_gpu_pod
from k8s.nodes.gpus import concerns_gpus
from k8s.nodes.machines import Machine, read_machine
from k8s.objects import CLASS_PREFIX

# Functions raise ApiError and UnreachableError.


async def list_nodes(cluster: KubernetesClient) -> Manifests:
    return with_devices(await cluster.list("Node", ""), await list_devices(cluster))


async def list_unclaimed_nodes(cluster: KubernetesClient) -> Manifests:
    """Return the nodes without the GPUs of claims, for those who count only what pods request."""
    nodes, devices = await cluster.list("Node", ""), await list_devices(cluster)
    return with_devices(nodes, unclaimed(devices))


async def list_machines(cluster: KubernetesClient) -> tuple[Machine, ...]:
    return machines(await cluster.list("Node", ""), await list_devices(cluster))


def machines(nodes: Manifests, devices: Devices) -> tuple[Machine, ...]:
    """Return the nodes, empty, with the most GPUs that a claim of each DeviceClass could get."""
    found = map(read_machine, with_claimable(nodes, devices))
    return tuple(replace(each, uncounted=devices.uncounted) for each in found)


async def list_devices(cluster: KubernetesClient) -> Devices:
    """Return what nodes and pods of the same measurement need, so that it is listed once."""
    slices = await _list_if_possible("ResourceSlice", cluster)
    classes = await _list_if_possible("DeviceClass", cluster) if slices else []
    if slices is None or classes is None:
        return Devices(uncounted=(CLASS_PREFIX,))
    if not slices:
        return Devices()
    claims = await _list_if_possible("ResourceClaim", cluster)
    return await asyncio.to_thread(read_devices, classes, slices, claims or ())


async def list_gpu_pods(cluster: KubernetesClient, devices: Devices) -> tuple[GpuPod, ...]:
    """Return the unfinished pods that have to do with GPUs."""
    found = await cluster.list("Pod", "", fields=UNFINISHED_PODS, only=concerns_gpus)
    return tuple(filter(None, map(read_gpu_pod, with_claims(found, devices))))


async def _list_if_possible(kind: str, cluster: KubernetesClient) -> Manifests | None:
    """Return None without the permission, and no objects of a kind that isn't served."""
    try:
        return await cluster.list(kind, "")
    except ApiError as error:
        if error.status not in {403, 404}:
            raise
        return None if error.status == 403 else []
