"""Store which cluster each name of `clusters:` means, by the uid of its namespace kube-system."""

from k8s.api.client import KubernetesClient
from k8s.configmaps import upsert
from k8s.objects import Manifest, Ref

NAME = "sweepbot-clusters"


class Identities:
    """A ConfigMap in the home cluster: cluster -> uid. Methods raise ApiError and UnreachableError."""

    def __init__(self, home: KubernetesClient, namespace: str) -> None:
        self._home, self._ref = home, Ref("ConfigMap", namespace, NAME)

    async def stored(self, cluster: str, uid: str) -> str:
        """Return the uid that was stored first for this cluster; this one if there is none."""
        found = await self._home.get(self._ref)
        return str(((found or {}).get("data") or {}).get(cluster, uid))

    async def known(self, cluster: str, uid: str) -> str:
        """Return the uid that was stored first for this cluster; store this one if there is none."""
        if (stored := await self.stored(cluster, "")) != "":
            return stored
        saved = await upsert(self._home, self._config_map({cluster: uid}))
        return str(saved["data"][cluster])

    def _config_map(self, data: dict[str, str]) -> Manifest:
        metadata = {"name": self._ref.name, "namespace": self._ref.namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
