"""What two drivers publish and what their demos claim, in these shapes, written anew.

kubernetes-sigs/dra-example-driver at 31914ce (chart v0.4.0: templates/deviceclass.yaml, the profile `gpu` in
internal/profiles/gpu, demo/examples), and kubernetes-sigs/dra-driver-nvidia-gpu at 2240711 (the chart's
classes, cmd/gpu-kubelet-plugin: deviceinfo.go, partitions.go, mig.go). Both publish one pool for each node,
named like it; from Kubernetes 1.35 on, shared counters are in a slice of their own.
"""

from tests.scenarios.device_cluster import device_class

EXAMPLE, NVIDIA = "gpu.example.com", "gpu.nvidia.com"
MIG = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'mig'"


def example_class(extended_resource=""):
    made = device_class(EXAMPLE, f"device.driver == '{EXAMPLE}'")
    return made | {"spec": made["spec"] | {"extendedResourceName": extended_resource}}


def example_slices(node, gpus=8, *, partitions=0, shared=False, generation=1):
    """`partitions` is kubeletPlugin.gpuPartitions of the chart, `shared` its gpuAllowMultipleAllocations."""
    devices = [device for n in range(gpus) for device in _example_devices(n, partitions, shared=shared)]
    sets = [_counters(f"gpu-{n}-counters", 80, 100) for n in range(gpus)] if partitions else []
    return _slices(
        EXAMPLE, node, [{"sharedCounters": sets}] * bool(sets) + [{"devices": devices}], generation
    )


def _example_devices(number, partitions, *, shared):
    facts = {
        "index": {"int": number},
        "uuid": {"string": f"gpu-18db0e85-99e9-c746-8531-ffeb86328b3{number}"},
        "model": {"string": "LATEST-GPU-MODEL"},
        "driverVersion": {"version": "1.0.0"},
    }

    def device(name, part, **more):
        capacity = {"memory": {"value": f"{80 // part}Gi"}, "compute": {"value": str(100 // part)}}
        made = {"name": name, "attributes": facts | more, "capacity": capacity}
        made["allowMultipleAllocations"] = shared
        if partitions:
            made["consumesCounters"] = [
                _counters(f"gpu-{number}-counters", 80 // part, 100 // part, "counterSet")
            ]
        return made

    if not partitions:
        return [device(f"gpu-{number}", 1)]
    divided = {"partitionable": {"bool": True}}
    return [
        *(
            device(f"gpu-{number}-partition-{n}", partitions, partition={"int": n}, **divided)
            for n in range(partitions)
        ),
        device(f"gpu-{number}-full", 1, full={"bool": True}, **divided),
    ]


def _counters(name, memory, compute, key="name"):
    return {key: name, "counters": {"memory": {"value": f"{memory}Gi"}, "compute": {"value": str(compute)}}}


def nvidia_classes():
    """As the chart creates them: for whole GPUs, MIG slices, and GPUs of virtual machines."""
    whole = device_class()
    whole["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    return [
        whole,
        device_class("mig.nvidia.com", MIG),
        device_class("vfio.gpu.nvidia.com", MIG[:-5] + "'vfio'"),
    ]


def nvidia_slices(node, gpus=1, *, profiles=()):
    """`profiles`: name, NVML's number, and memory slices of what DynamicMIG can divide each GPU into."""
    sets, parts = [], []
    for n in range(gpus):
        counters = {f"memory-slice-{at}": {"value": "1"} for at in range(8)}
        sets.append({"name": f"gpu-{n}-counter-set", "counters": counters})
        whole = {
            "name": f"gpu-{n}",
            "attributes": _nvidia_facts("gpu", n),
            "capacity": {"memory": {"value": "80Gi"}},
        }
        placed = [(*each, start) for each in profiles for start in range(0, 8, each[2])]
        parts.append(
            [
                _consuming(whole, n, range(8)) if profiles else whole,
                *(
                    _consuming(
                        {
                            "name": f"gpu-{n}-mig-{name.replace('.', '')}-{number}-{start}",
                            "attributes": _nvidia_facts("mig", n) | {"profile": {"string": name}},
                        },
                        n,
                        range(start, start + size),
                    )
                    for name, number, size, start in placed
                ),
            ]
        )
    if not profiles:
        return _slices(NVIDIA, node, [{"devices": [each for [each] in parts]}])
    return _slices(NVIDIA, node, [{"sharedCounters": sets}, *({"devices": each} for each in parts)])


def _nvidia_facts(type_, number):
    return {
        "type": {"string": type_},
        "parentUUID" if type_ == "mig" else "uuid": {
            "string": f"GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23{number}"
        },
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "580.65.6"},
    }


def _consuming(device, number, memory_slices):
    counters = {f"memory-slice-{at}": {"value": "1"} for at in memory_slices}
    return device | {"consumesCounters": [{"counterSet": f"gpu-{number}-counter-set", "counters": counters}]}


def _slices(driver, node, contents, generation=1):
    pool = {"name": node, "generation": generation, "resourceSliceCount": len(contents)}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{driver}-{generation}x{at}"},
            "spec": {"driver": driver, "nodeName": node, "pool": pool, **content},
        }
        for at, content in enumerate(contents)
    ]


def demo_template(name, namespace, *requests):
    """A ResourceClaimTemplate of the example driver's demo."""
    meta = {"name": name, "namespace": namespace}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": meta}
    return head | {"spec": {"spec": {"devices": {"requests": list(requests)}}}}


def one(name="gpu", **more):
    return {"name": name, "exactly": {"deviceClassName": EXAMPLE, **more}}


def preferring(*models):
    """Prioritized alternatives: these models in order, then any GPU."""
    expression = "device.attributes['gpu.example.com'].model == '{}'"
    alternatives = [
        {"name": model.lower(), "selectors": [{"cel": {"expression": expression.format(model)}}]}
        for model in models
    ]
    found = [each | {"deviceClassName": EXAMPLE} for each in [*alternatives, {"name": "any"}]]
    return {"name": "gpu", "firstAvailable": found}


def demo_pod(name, namespace, *, template="", claim=""):
    """A pod of the demo: one container, which uses the claim of the template, or one that others share."""
    reference = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
    container = {"name": "ctr0", "image": "ubuntu:22.04", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "gpu", **reference}]}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
