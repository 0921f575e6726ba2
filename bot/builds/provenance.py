"""Record which images Sweepbot made.

Trials run only these, by digest, because anyone who can push can move a tag. A digest is recorded when the
build Job has finished with exit code 0, or when Sweepbot has composed the image: one ConfigMap per image,
which no build and no trial can write to.
"""

from bot.clients import Clients
from bot.registry.images import ImageRef
from k8s.api.errors import ApiError
from k8s.configmaps import upsert
from k8s.kaniko import DIGEST_PATTERN
from k8s.objects import Manifest, Ref, config_map, ref_of

IMAGE_LABEL = "sweepbot/image"  # of these ConfigMaps


async def recorded(place: ImageRef, clients: Clients) -> str | None:
    """Return the digest of the image that Sweepbot built, if the registry still has it.

    Raises ApiError, UnreachableError, RegistryError.
    """
    found = await clients.cluster.get(ref_of(_config_map(place, "", clients)))
    data = (found or {}).get("data") or {}
    digest = str(data.get("digest", ""))
    if data.get("image") != str(place) or not DIGEST_PATTERN.fullmatch(digest):
        return None
    return digest if await clients.registry.digest(place.repository, digest) else None


async def record(place: ImageRef, digest: str, clients: Clients) -> None:
    """Record an image's digest, replacing an older one. Raises ApiError, UnreachableError."""
    try:
        await upsert(clients.cluster, _config_map(place, digest, clients))
    except ApiError as error:
        if not error.exists:  # another sweep that waited for the same build
            raise


def _config_map(place: ImageRef, digest: str, clients: Clients) -> Manifest:
    """Names are unique: repositories and tags of builds have only lowercase letters, digits, `-`, `/`."""
    name = f"image.{place.repository.replace('/', '.')}.{place.tag}"
    address = Ref("ConfigMap", clients.settings.k8s_namespace, name)
    return config_map(address, {"image": str(place), "digest": digest}, {IMAGE_LABEL: "recorded"})
