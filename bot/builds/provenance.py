"""Record which images Sweepbot made.

Trials run only these, by digest, because anyone who can push can move a tag. A digest is recorded when the
build Job has finished with exit code 0, or when Sweepbot has composed the image: one ConfigMap per image,
which no build and no trial can write to.
"""

from bot.clients import Clients
from bot.registry.images import Place
from k8s.configmaps import upsert
from k8s.errors import ApiError
from k8s.kaniko import DIGEST
from k8s.objects import MANAGED_BY, Manifest, ref_of

LABEL = "sweepbot/image"  # of these ConfigMaps


async def recorded(place: Place, clients: Clients) -> str | None:
    """The digest of the image that Sweepbot made as `place`, if the registry still has it.

    Raises ApiError, UnreachableError, RegistryError.
    """
    kept = await clients.cluster.get(ref_of(_config_map(place, "", clients)))
    data = (kept or {}).get("data") or {}
    digest = str(data.get("digest", ""))
    if data.get("image") != str(place) or not DIGEST.fullmatch(digest):
        return None
    return digest if await clients.registry.digest(place.repository, digest) else None


async def record(place: Place, digest: str, clients: Clients) -> None:
    """Replaces an older one: what has left the registry is built again. Raises ApiError, UnreachableError."""
    try:
        await upsert(clients.cluster, _config_map(place, digest, clients))
    except ApiError as error:
        if not error.exists:  # another sweep that waited for the same build
            raise


def _config_map(place: Place, digest: str, clients: Clients) -> Manifest:
    """Repositories and tags of builds hold lowercase letters, digits, `-` and `/`: no two have one name."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"image.{place.repository.replace('/', '.')}.{place.tag}",
            "namespace": clients.settings.k8s_namespace,
            "labels": {MANAGED_BY: "sweepbot", LABEL: "recorded"},
        },
        "data": {"image": str(place), "digest": digest},
    }
