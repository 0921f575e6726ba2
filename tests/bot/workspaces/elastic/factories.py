"""Nodes, pods, and Deployments as the API server returns them, for tests of elastic replicas."""

from k8s.nodes.scheduling import read_open_node, read_scheduled
from tests.bot.factories import ELASTIC

GPU = "nvidia.com/gpu"
CLASS = "sweepbot-elastic"
SERVING = "serving"
LLM = ELASTIC


def node_of(name="gpu-1", gpus=4, *, cpu="32", labels=None, taints=(), ready="True", cordoned=False, **sizes):
    sizes = {"cpu": cpu, "memory": "256Gi", "pods": "110", GPU: str(gpus)} | sizes
    status = {"allocatable": sizes, "capacity": sizes, "conditions": [{"type": "Ready", "status": ready}]}
    spec = {"taints": [*taints]} | ({"unschedulable": True} if cordoned else {})
    meta = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status}


def pod_of(name, node="", *, gpus=1, priority=0, meta=None, status=None, cpu="1", **spec):
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {GPU: str(gpus)} if gpus else {}}
    containers = [{"name": "main", "image": "x", "resources": resources}]
    spec = {"containers": containers, "priority": priority} | ({"nodeName": node} if node else {}) | spec
    meta = {"namespace": "sweeps", "name": name, "uid": name, "labels": {}} | (meta or {})
    status = {"phase": "Running" if node else "Pending"} | (status or {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def unschedulable(message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", **status):
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [said]} | status


def replica_of(name, node="", **changes):
    owner = {"kind": "ReplicaSet", "name": "llm-7d9f", "uid": "rs"}
    meta = {"namespace": SERVING, "labels": {"pod-template-hash": "7d9f"}, "ownerReferences": [owner]}
    changes["meta"] = meta | changes.get("meta", {})
    return pod_of(name, node, **{"priority": -100} | changes)


def deployment_of(gpus=1, replicas=0, cpu="1", **spec):
    main = {"name": "main", "image": "registry:5000/lab/llm:1"}
    main["resources"] = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {GPU: str(gpus)}}
    labels = {"app": "llm"}
    pod = {"containers": [main], "priorityClassName": CLASS} | spec
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm", "namespace": SERVING},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def pods_of(*manifests):
    return [found for each in manifests if (found := read_scheduled(each))]


def nodes_of(*manifests):
    return [found for each in manifests if (found := read_open_node(each))]
