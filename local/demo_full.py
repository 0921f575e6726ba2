"""What `make demo FULL=1` adds: Kueue's queues, kinds of machines, and services.

The node gpu-2 also offers two slices of a GPU (MIG), which its exporter doesn't measure.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from local import cluster, kueue, manifests
from local.demo_environments import CONFIG as ENVIRONMENTS
from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.controllers.deployments import Deployments
from local.slack.workspace import ADA
from local.world import World

MANIFESTS = Path(__file__).with_suffix(".yaml")
PRODUCT = "nvidia.com/gpu.product"
MODELS = {"gpu-1": "NVIDIA-A100-SXM4-80GB", "gpu-2": "NVIDIA-H100-80GB-HBM3"}
SLICES = {"nvidia.com/mig-1g.10gb": "2"}
IMAGE, PORT = "python:3.11-slim", 8010
CONFIG: Object = {
    "queues": {"research": {}, "urgent": {"people": [ADA.id]}},
    "priorities": {name: {"class": f"sweeps-{name}"} for name in ("low", "normal", "high")},
    "profiles": {
        "gpu": {"gpus": 1},
        "h100": {"gpus": 1, "nodes": {PRODUCT: MODELS["gpu-2"]}},
        "mig": {"gpus": 1, "resource": next(iter(SLICES))},
        "8xh100": {"gpus": 8, "nodes": {PRODUCT: MODELS["gpu-2"]}},
    },
    "environments": ENVIRONMENTS["environments"] | {"services": {"images": [IMAGE]}},
}
TO_TRY = f"""
  Queues    Kueue admits 2 of the 4 GPUs. Run   /sweep branch=main repo=digits space=idle gate=off
            until two trials run. Then /sweep branch=main repo=digits space=lr priority=high preempts one;
            /sweep queue shows the order
  Profiles  profile=h100 chooses gpu-2, and profile=mig slices of a GPU; profile=8xh100 is refused
  Services  /env service start, with these lines below:
                name: web
                image: {IMAGE}
                port: {PORT}
                command: python3 -m http.server {PORT} --bind 127.0.0.1
"""


@asynccontextmanager
async def installed(here: World) -> AsyncIterator[None]:
    """Add them to a world with environments whose bot isn't running yet, and run its services."""
    _install(here)
    services = Deployments(here.store, CONFIG["environments"]["namespace"])
    services.start()
    try:
        yield
    finally:
        await services.close()


def _install(here: World) -> None:
    kueue.install(here.store)
    for obj in manifests.read(MANIFESTS):
        here.store.create(obj)
    cluster.apply(here.store, "queues/rights.yaml")
    for node, model in MODELS.items():
        here.store.patch("Node", "", node, {"metadata": {"labels": {PRODUCT: model}}})
    offered = {"status": {"capacity": SLICES, "allocatable": SLICES}}
    here.store.patch("Node", "", "gpu-2", offered, subresource="status")
    config = here.folder / "config.yaml"
    found = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump(found | CONFIG, sort_keys=False))
