"""Run a whole cluster: API server, controllers, Kueue, Katib, the training operators, and nodes.

`python -m local cluster` runs one beside the main cluster, for trials, with its objects in a file: killed
with all its containers and started again, it is the same cluster after a power failure. Katib's database of
metrics starts empty then; what finished trials reported is in their status.
"""

import argparse
import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from local import cluster_fixtures, manifests
from local.katib import Katib
from local.kubernetes.apiserver.api import KUBECTL, ApiServer, serve
from local.kubernetes.apiserver.journal import restore
from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.jobs import Controllers
from local.kubernetes.controllers.resource_claims import ResourceClaims
from local.kubernetes.node.kubelet import Kubelet
from local.kueue import Kueue
from local.trainer import Trainer
from local.training_operator import TrainingOperator

DEPLOY = Path(__file__).parent.parent / "deploy"
NAMESPACE = "sweeps"
WORKER, TOKEN = "system:serviceaccount:sweepbot:sweepbot-work", "local-sweepbot-work"


@dataclass
class Cluster:
    server: ApiServer
    kubelet: Kubelet
    katib: Katib

    @property
    def store(self) -> Store:
        return self.server.store


async def start(
    stack: AsyncExitStack,
    folder: Path,
    nodes: Mapping[str, int],
    registry: str,
    install: Callable[[Store], None],
    *,
    port: int = 0,
    journal: Path | None = None,
) -> Cluster:
    """Start a cluster that ends with `stack`.

    Args:
        nodes: their GPUs, by name.
        registry: its address.
        install: creates the objects of a new cluster.
        journal: a file that keeps the objects; an existing one restores them.
    """
    store = Store()
    katib, operator, trainer = Katib(store), TrainingOperator(store), Trainer(store)
    if not (journal and restore(store, journal)):
        cluster_fixtures.install(store, nodes)
        store.create(katib_config())
        install(store)
    server = await serve(store, port)
    stack.push_async_callback(server.close)
    daemons = dict.fromkeys(("k8s-device-plugin", "dcgm-exporter"), cluster_fixtures.daemon)
    builtins = {**katib.builtins, **operator.builtins, **daemons}
    kubelet = Kubelet(store, nodes, registry, builtins, folder / "pods")
    server.logs, server.metrics = kubelet.logs, kubelet.metrics
    await katib.db_manager.start()
    stack.push_async_callback(katib.db_manager.close)
    stack.push_async_callback(kubelet.close)
    for part in (Controllers(store), ResourceClaims(store), katib, operator, trainer, Kueue(store)):
        stack.push_async_callback(part.close)
        part.start()
    kubelet.start()
    server.kubeconfig(folder / "kubeconfig", below=KUBECTL)
    server.tokens[TOKEN] = WORKER
    server.kubeconfig(folder / "bot-kubeconfig", TOKEN)
    return Cluster(server, kubelet, katib)


def katib_config() -> Object:
    """Return Katib's ConfigMap as the component in deploy/search makes it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "katib-config", "namespace": "kubeflow"},
        "data": {"katib-config.yaml": (DEPLOY / "search/katib-config.yaml").read_text()},
    }


def apply(store: Store, *files: str, namespace: str = "") -> None:
    """Create the objects of files in deploy/, in another namespace if one is given."""
    for file in files:
        for obj in manifests.read(DEPLOY / file):
            place = {"namespace": namespace} if namespace else {}
            store.create(obj | {"metadata": obj["metadata"] | place})


def _install_remote(store: Store) -> None:
    """As docs/clusters.md says."""
    apply(store, "clusters/remote.yaml")
    apply(store, "namespace/rights.yaml", namespace=NAMESPACE)


async def run(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m local cluster", description=__doc__)
    parser.add_argument("folder", type=Path, help="for objects, pods, and kubeconfigs")
    parser.add_argument("--registry", required=True, metavar="HOST:PORT")
    parser.add_argument("--port", type=int, default=0, help="of the API server; 0 takes a free one")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    journal, nodes = options.folder / "etcd.jsonl", {"far-1": 2}
    async with AsyncExitStack() as stack:
        made = await start(
            stack,
            options.folder,
            nodes,
            options.registry,
            _install_remote,
            port=options.port,
            journal=journal,
        )
        print(made.server.url, flush=True)
        await asyncio.Event().wait()
