"""The JobSet of a TrainJob: its runtime's template, with the trainer's values and torch's variables. Pure.

As in kubeflow/trainer v2.3.0: pkg/runtime/core/trainingruntime.go and pkg/runtime/framework/plugins/torch and
jobset. What a user should know of it:

- Without `spec.trainer`, the container gets no PET_* variables.
- `PET_NPROC_PER_NODE` is `auto` only if the container requests GPUs; else it is the number of whole CPUs.
- The JobSet gets the labels of `template.metadata` of the runtime, and none of the TrainJob's.
"""

from collections.abc import Iterable

from local.kubernetes.apiserver.kinds import KINDS, Object, clone
from local.kubernetes.apiserver.pods import amount
from local.kubernetes.apiserver.store import owner

NODE = "node"  # the replicated Job and its container
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
PORT = 29500
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def jobset(job: Object, runtime: Object) -> Object:
    template, meta = runtime["spec"]["template"], job["metadata"]
    labels = {
        key: clone(template["metadata"][key])
        for key in ("labels", "annotations")
        if key in template.get("metadata", {})
    }
    place = {"name": meta["name"], "namespace": meta["namespace"], "ownerReferences": [owner(job)]}
    spec = {**jobset_spec(job, runtime), "suspend": job["spec"]["suspend"]}
    head = {"apiVersion": KINDS["JobSet"].api_version, "kind": "JobSet"}
    return {**head, "metadata": {**labels, **place}, "spec": spec}


def jobset_spec(job: Object, runtime: Object) -> Object:
    """Return the spec without `suspend`; Kueue reads the pods of a TrainJob from it."""
    spec: Object = clone(runtime["spec"]["template"]["spec"])
    trainer, nodes = job["spec"].get("trainer"), count(job, runtime)
    for replicated in spec["replicatedJobs"]:
        replicated["replicas"] = 1
        replicated["template"]["spec"] |= {"parallelism": nodes, "completions": nodes}
        for container in replicated["template"]["spec"]["template"]["spec"]["containers"]:
            if container["name"] == NODE:
                _fill(container, trainer or {})
                if trainer is not None:
                    _add_torch(container, job, nodes)
    return spec


def count(job: Object, runtime: Object) -> int:
    """Return the number of nodes."""
    given = job["spec"].get("trainer", {}).get("numNodes")
    nodes: int = runtime["spec"]["mlPolicy"].get("numNodes", 1) if given is None else given
    return nodes


def _fill(container: Object, trainer: Object) -> None:
    for key in ("image", "command", "args"):
        if key in trainer:
            container[key] = clone(trainer[key])
    for key, sizes in trainer.get("resourcesPerNode", {}).items():
        resources = container.setdefault("resources", {})
        resources[key] = resources.get(key, {}) | sizes
    _set_variables(container, trainer.get("env", []))


def _add_torch(container: Object, job: Object, nodes: int) -> None:
    name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
    sizes = trainer.get("resourcesPerNode", container.get("resources", {}))
    processes = trainer.get("numProcPerNode") or _processes(sizes)
    rank = {"valueFrom": {"fieldRef": {"fieldPath": INDEX}}}
    values = [str(nodes), str(processes), rank, f"{name}-{NODE}-0-0.{name}", str(PORT)]
    pairs = zip(RESERVED, values, strict=True)
    added = [
        {"name": key, **(value if isinstance(value, dict) else {"value": value})} for key, value in pairs
    ]
    _set_variables(container, added)
    ports = container.setdefault("ports", [])
    if PORT not in [each["containerPort"] for each in ports]:
        ports.append({"containerPort": PORT})


def _processes(resources: Object) -> str:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    if any("gpu" in name.lower() and amount(size) for name, size in (requests | limits).items()):
        return "auto"
    return str(max(1, -int(-amount(requests.get("cpu") or limits.get("cpu") or "0") // 1)))


def _set_variables(container: Object, variables: Iterable[Object]) -> None:
    """Replace variables of the same name in place, and append the others."""
    env = {each["name"]: each for each in container.get("env", [])}
    env |= {each["name"]: clone(each) for each in variables}
    if env:
        container["env"] = list(env.values())
