"""The init container of workers: it waits until the master's name resolves.

As in kubeflow/trainer v1.9.3, pkg/controller.v1/pytorch/initcontainer.go. A headless Service without
`publishNotReadyAddresses` resolves only to pods that are ready.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.store import Store

IMAGE = "alpine:3.10"
MAX_TRIES = 100
PAUSE = 2.0  # seconds
COMMAND = (
    f"err=1;for i in $(seq {MAX_TRIES}); do if nslookup {{}}; then err=0 && break; fi;"
    "echo waiting for master; sleep 2; done; exit $err"
)


def container(master: str) -> Object:
    sizes = {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}}
    command = ["sh", "-c", COMMAND.format(master)]
    head = {"name": "init-pytorch", "image": IMAGE, "imagePullPolicy": "IfNotPresent"}
    return {**head, "resources": sizes, "command": command}


async def run(
    store: Store,
    pod: Object,
    spec: Object,
    _volumes: Mapping[str, Path],
    log: Callable[[str], None],
    _siblings: object,
) -> int:
    """Run it in the kubelet's process, and return its exit code."""
    found = re.search(r"nslookup ([-a-z0-9]+);", " ".join(spec["command"]))
    master = found[1] if found else ""
    for _ in range(MAX_TRIES):
        if _resolves(store, pod["metadata"]["namespace"], master):
            log(f"Name:      {master}")
            return 0
        log(f"nslookup: can't resolve '{master}': Name does not resolve\nwaiting for master")
        await asyncio.sleep(PAUSE)
    return 1


def _resolves(store: Store, namespace: str, name: str) -> bool:
    service = store.get("Service", namespace, name)
    pods = store.list("Pod", namespace, service["spec"]["selector"]) if service else []
    return any(p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"] for p in pods)
