"""The nodes of a TrainJob as real processes, which find each other by torchrun's variables."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local.kubernetes.node.kubelet import Kubelet
from tests.local.kubernetes.node.pods import PYTHON
from tests.local.trainer.conftest import World, train_job, training_runtime

TRAINING = """
import os, socket, time
rank, nodes = int(os.environ["PET_NODE_RANK"]), int(os.environ["PET_NNODES"])
first = os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"])
if rank:
    while True:
        try:
            socket.create_connection(first).sendall(b"%d" % rank)
            break
        except OSError:
            time.sleep(0.1)
else:
    server = socket.create_server(first)
    print("joined by", sorted(server.accept()[0].recv(9).decode() for _ in range(nodes - 1)))
"""


async def test_nodes_find_the_first_one(world: World, tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    name = f"train-{secrets.token_hex(4)}"  # its address, too, belongs to this run
    nodes = {"gpu-1": 0, "gpu-2": 0}
    kubelet = Kubelet(world.store, nodes, "127.0.0.1:1", {}, tmp_path / "pods", retry=0.05)
    kubelet.start()
    try:
        runtime = training_runtime()
        world.store.create(runtime)
        trainer = {"numNodes": 3, "image": PYTHON, "command": ["python", "-c", TRAINING]}
        world.store.create(train_job(name, trainer=trainer))

        def ended() -> list[str]:
            status = (world.store.get("TrainJob", "default", name) or {}).get("status", {})
            return [each["type"] for each in status.get("conditions", [])]

        assert await wait_until(ended, "it has ended") == ["Complete"]
        [first] = [pod for pod in world.names("Pod") if pod.startswith(f"{name}-node-0-0-")]
        assert kubelet.logs("default", first, "node", None) == "joined by ['1', '2']\n"
    finally:
        await kubelet.close()
