"""ConfigMaps that Sweepbot keeps its own data in."""

from k8s.client import KubernetesClient
from k8s.errors import ApiError
from k8s.objects import Manifest, ref_of


async def upsert(cluster: KubernetesClient, config_map: Manifest) -> Manifest:
    """Merge it into the ConfigMap of its name, or create that. Return it as the cluster has it now.

    Raises ApiError and UnreachableError; ApiError.exists when somebody else created it meanwhile.
    """
    try:
        return await cluster.merge(ref_of(config_map), config_map)
    except ApiError as error:
        if not error.absent:
            raise
        return await cluster.create(config_map)
