"""Write the ConfigMaps that hold Sweepbot's own data."""

from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.objects import Manifest, ref_of


async def upsert(cluster: KubernetesClient, config_map: Manifest) -> Manifest:
    """Merge into the ConfigMap of this name, or create it, and return the result.

    Raises ApiError and UnreachableError; ApiError.exists if another process created it in between.
    """
    try:
        return await cluster.merge(ref_of(config_map), config_map)
    except ApiError as error:
        if not error.absent:
            raise
        return await cluster.create(config_map)
