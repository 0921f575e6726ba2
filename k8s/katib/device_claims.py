"""Claim a trial's GPUs by a DeviceClass: Dynamic Resource Allocation, in place of a device plugin. Pure.

Each pod gets a ResourceClaim of its own from a ResourceClaimTemplate. All sweeps of a namespace with the same
class and number of GPUs share the template, which can't be changed: it is created once, and stays.
"""

from k8s.objects import CLASS_PREFIX, MANAGED_BY, Manifest, name

CLAIM = "gpus"  # its name in the pod


def device_class(resource: str) -> str:
    """Return the DeviceClass of a resource; "" if a device plugin offers it."""
    return resource.removeprefix(CLASS_PREFIX) if resource.startswith(CLASS_PREFIX) else ""


def template_name(resource: str, gpus: int) -> str:
    return name("sweepbot", device_class(resource), str(gpus))


def template(namespace: str, resource: str, gpus: int) -> Manifest:
    meta = {"name": template_name(resource, gpus), "namespace": namespace, "labels": {MANAGED_BY: "sweepbot"}}
    request = {"name": CLAIM, "exactly": {"deviceClassName": device_class(resource), "count": gpus}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": meta,
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def pod_fields(resource: str, gpus: int) -> Manifest:
    """Return the part of a pod's spec that has its claim; {} if a device plugin offers the GPUs."""
    if not (gpus and device_class(resource)):
        return {}
    return {"resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": template_name(resource, gpus)}]}
