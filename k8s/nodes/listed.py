"""List nodes and pods with their GPUs, those of ResourceSlices and ResourceClaims included.

Where these kinds aren't served, before Kubernetes 1.34, or can't be listed, only device plugins count.
"""

import asyncio
from dataclasses import replace

from k8s.api.client import KubernetesClient, Manifests
from k8s.api.errors import ApiError
from k8s.nodes.devices import (
    Devices,
    read_claim,
    read_devices,
    unclaimed,
    with_claimable,
    with_claims,
    with_devices,
)
from k8s.nodes.gpu_pods import UNFINISHED_PODS, GpuPod, read_gpu_pod
from k8s.nodes.gpus import concerns_gpus
from k8s.nodes.machines import Machine, read_machine
from k8s.objects import CLASS_PREFIX

# Functions raise ApiError and UnreachableError.


async def list_nodes(cluster: KubernetesClient) -> Manifests:
    nodes = await cluster.list("Node", "")
    return with_devices(nodes, await list_devices(cluster))


async def list_unclaimed_nodes(cluster: KubernetesClient) -> Manifests:
    """Return the nodes without the GPUs of claims, for those who count only what pods request."""
    nodes, devices = await cluster.list("Node", ""), await list_devices(cluster)
    claims = await _list_if_possible("ResourceClaim", cluster) if devices.known else ()
    return with_devices(nodes, unclaimed(devices, claims or ()))


async def list_machines(cluster: KubernetesClient) -> tuple[Machine, ...]:
    return machines(await cluster.list("Node", ""), await list_devices(cluster))


def machines(nodes: Manifests, devices: Devices) -> tuple[Machine, ...]:
    """Return the nodes, empty, with the most GPUs that a claim of each DeviceClass could get."""
    found = map(read_machine, with_claimable(nodes, devices))
    return tuple(replace(each, uncounted=devices.uncounted) for each in found)


async def list_devices(cluster: KubernetesClient) -> Devices:
    slices = await _list_if_possible("ResourceSlice", cluster)
    classes = await _list_if_possible("DeviceClass", cluster) if slices else []
    if slices is None or classes is None:
        return Devices(classes={}, known={}, uncounted=(CLASS_PREFIX,))
    return await asyncio.to_thread(read_devices, classes, slices) if slices else Devices(classes={}, known={})


async def list_pods(cluster: KubernetesClient, namespace: str = "") -> Manifests:
    """Return the unfinished pods that have to do with GPUs."""
    found = await cluster.list("Pod", namespace, fields=UNFINISHED_PODS, only=concerns_gpus)
    return await add_claims(found, cluster)


async def list_gpu_pods(cluster: KubernetesClient) -> tuple[GpuPod, ...]:
    return tuple(filter(None, map(read_gpu_pod, await list_pods(cluster))))


async def add_claims(pods: Manifests, cluster: KubernetesClient) -> Manifests:
    """Return the pods with the GPUs of their claims. Without claims, nothing is read."""
    if not any(pod["spec"].get("resourceClaims") for pod in pods):
        return pods
    devices, listed = await list_devices(cluster), await _list_if_possible("ResourceClaim", cluster)
    claims = {
        (c["metadata"]["namespace"], c["metadata"]["name"]): read_claim(c, devices) for c in listed or ()
    }
    return with_claims(pods, claims)


async def _list_if_possible(kind: str, cluster: KubernetesClient) -> Manifests | None:
    """Return None without the permission, and no objects of a kind that isn't served."""
    try:
        return await cluster.list(kind, "")
    except ApiError as error:
        if error.status not in {403, 404}:
            raise
        return None if error.status == 403 else []
