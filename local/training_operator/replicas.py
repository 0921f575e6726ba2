"""The pods and headless Services of a PyTorchJob, one of each for each replica. Pure.

As in kubeflow/trainer v1.9.3: pkg/controller.v1/pytorch/envvar.go and master.go, pkg/controller.v1/common's
pod.go and service.go, and pkg/apis/kubeflow.org/v1/pytorch_defaults.go. The stored object keeps no defaults.
"""

from local.kubernetes.apiserver.kinds import Object, clone
from local.kubernetes.apiserver.store import owner
from local.training_operator.init_container import container as init_container
from local.training_operator.webhook import CONTAINER, TYPES

GROUP = "training.kubeflow.org"
OPERATOR = "pytorchjob-controller"
PORT = ("pytorchjob-port", 23456)


def counts(job: Object) -> dict[str, int]:
    """Return the number of replicas by type, the master first."""
    specs = job["spec"]["pytorchReplicaSpecs"]
    return {type_: specs[type_].get("replicas", 1) for type_ in TYPES if type_ in specs}


def name(job: Object, type_: str, index: int) -> str:
    """Return the name of a replica's pod and Service."""
    return f"{job['metadata']['name']}-{type_.lower()}-{index}"


def labels(job: Object, type_: str) -> dict[str, str]:
    """Return the labels that all replicas of a type have."""
    own = {"operator-name": OPERATOR, "job-name": job["metadata"]["name"], "replica-type": type_.lower()}
    return {f"{GROUP}/{key}": value for key, value in own.items()}


def index_of(obj: Object) -> int:
    return int(obj["metadata"]["labels"][f"{GROUP}/replica-index"])


def pod(job: Object, type_: str, index: int) -> Object:
    template = clone(job["spec"]["pytorchReplicaSpecs"][type_]["template"])
    spec, given = template["spec"], template.get("metadata", {})
    role = {f"{GROUP}/job-role": "master"} if type_ == "Master" else {}
    meta = {
        **_meta(job, type_, index),
        "annotations": given.get("annotations", {}),
    }
    meta["labels"] = given.get("labels", {}) | meta["labels"] | role
    for container in spec["containers"]:
        container["env"] = [*container.get("env", []), *_variables(job, type_, index)]
    _with_port(spec)
    if type_ == "Worker":
        spec["initContainers"] = [*spec.get("initContainers", []), init_container(name(job, "Master", 0))]
    spec["restartPolicy"] = job["spec"]["pytorchReplicaSpecs"][type_]["restartPolicy"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def service(job: Object, type_: str, index: int) -> Object:
    """Return a headless Service, which resolves the pod of the same name once it is ready."""
    meta = _meta(job, type_, index)
    ports = [{"name": key, "port": number} for key, number in _ports(job, type_).items()]
    spec = {"clusterIP": "None", "selector": meta["labels"], "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def _meta(job: Object, type_: str, index: int) -> Object:
    return {
        "name": name(job, type_, index),
        "namespace": job["metadata"]["namespace"],
        "labels": labels(job, type_) | {f"{GROUP}/replica-index": str(index)},
        "ownerReferences": [owner(job)],
    }


def _variables(job: Object, type_: str, index: int) -> list[Object]:
    """Return what the operator adds to each container, after its own variables."""
    total, rank = sum(counts(job).values()), index + (type_ == "Worker")
    processes = job["spec"].get("nprocPerNode", "auto")
    master, port = name(job, "Master", 0), _ports(job, "Master")[PORT[0]]
    found = {
        "PYTHONUNBUFFERED": 1,
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": master,
        "PET_MASTER_ADDR": master,
        "WORLD_SIZE": total * (int(processes) if processes.isdecimal() else 1),
        "RANK": rank,
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": processes,
        "PET_NNODES": total,
    }
    return [{"name": key, "value": str(value)} for key, value in found.items()]


def _ports(job: Object, type_: str) -> dict[str, int]:
    """Return the ports of the training's container by name."""
    spec = clone(job["spec"]["pytorchReplicaSpecs"][type_]["template"]["spec"])
    _with_port(spec)
    main = next(each for each in spec["containers"] if each["name"] == CONTAINER)
    return {each["name"]: each["containerPort"] for each in main["ports"]}


def _with_port(spec: Object) -> None:
    key, number = PORT
    main = next(each for each in spec["containers"] if each["name"] == CONTAINER)
    ports = main.setdefault("ports", [])
    if key not in [each.get("name") for each in ports]:
        ports.append({"name": key, "containerPort": number})
