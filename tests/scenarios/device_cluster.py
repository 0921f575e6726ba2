"""What a driver of Dynamic Resource Allocation publishes: a DeviceClass, and a slice of each node."""

SELECTOR = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"


def device_class(name="gpu.nvidia.com", expression=SELECTOR):
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}}
    return head | {"spec": spec}


def resource_slice(node, gpus, driver="gpu.nvidia.com"):
    """As NVIDIA's driver publishes whole GPUs, of fewer attributes."""
    devices = [
        {"name": f"gpu-{n}", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{node}-{n}"}}}
        for n in range(gpus)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    meta = {"name": f"{node}-{driver}-x7k2p"}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec}


def publish(store, gpus=2, class_=None, slices=lambda *args: [resource_slice(*args)]):
    """Replace the device plugin of all nodes by slices with so many GPUs each."""
    store.create(class_ or device_class())
    for node in store.list("Node"):
        name, status = node["metadata"]["name"], node["status"]
        none = {key: status[key] | {"nvidia.com/gpu": "0"} for key in ("capacity", "allocatable")}
        store.set_status(node, status | none)
        for each in slices(name, gpus):
            store.create(each)
