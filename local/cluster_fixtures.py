"""Install what Sweepbot needs (cluster_fixtures.yaml), with its pods."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from local import manifests
from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.store import Store
from local.kubernetes.node.container import Log

LOG_LINES = {
    "nvidia-device-plugin-ctr": "Registered device plugin for 'nvidia.com/gpu' with Kubelet\n",
    "nvidia-dcgm-exporter": "Starting webserver\n",
}
MANIFESTS = Path(__file__).with_suffix(".yaml")


def install(store: Store, nodes: Iterable[str]) -> None:
    for obj in manifests.read(MANIFESTS):
        made = store.create(obj)
        if obj["kind"] == "Deployment":
            store.set_status(made, obj["status"])
    for plugin in store.list("DaemonSet"):
        name, place, pod = (
            plugin["metadata"]["name"],
            plugin["metadata"]["namespace"],
            plugin["spec"]["template"],
        )
        pods = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": pod["metadata"] | {"name": f"{name}-{node}", "namespace": place},
                "spec": pod["spec"] | {"nodeName": node},
            }
            for node in nodes
        ]
        for each in pods:
            store.create(each)
        count = {"numberReady": len(pods), "desiredNumberScheduled": len(pods)}
        store.patch("DaemonSet", place, name, {"status": count})


async def daemon(_pod: object, spec: Object, _volumes: object, log: Log, _siblings: object) -> int:
    log(LOG_LINES[spec["name"]])
    await asyncio.Event().wait()
    return 0
