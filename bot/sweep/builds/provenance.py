"""Record the digest of each image that Sweepbot made: trials run only these, because anyone who can push can
move a tag.

A digest is recorded when the build Job has finished with exit code 0, or when Sweepbot has composed the
image: one ConfigMap per image, which no build and no trial can write to.
"""

from bot.platform.clients import Clients
from bot.platform.registry.images import ImageRef
from bot.platform.storage.configmaps import ConfigMapStore
from k8s.kaniko import DIGEST_PATTERN

IMAGE_LABEL = "sweepbot/image"  # of these ConfigMaps


async def recorded(place: ImageRef, clients: Clients) -> str | None:
    """Return the digest of the image that Sweepbot built, if the registry still has it.

    Raises ApiError, UnreachableError, RegistryError.
    """
    found = (await _store(place, clients).read()).values
    digest = found.get("digest", "")
    if found.get("image") != str(place) or not DIGEST_PATTERN.fullmatch(digest):
        return None
    return digest if await clients.registry.digest(place.repository, digest) else None


async def record(place: ImageRef, digest: str, clients: Clients) -> None:
    """Record an image's digest, replacing an older one. Raises ApiError, UnreachableError."""
    await _store(place, clients).write({"image": str(place), "digest": digest})


def _store(place: ImageRef, clients: Clients) -> ConfigMapStore[str]:
    """A name is that of one image, unless the prefix of the registry changes: `recorded` compares the image.

    ConfigMaps have no `_`, which a prefix can have.
    """
    name = f"image.{place.repository.replace('/', '.').replace('_', '-')}.{place.tag}"
    labels = ((IMAGE_LABEL, "recorded"),)
    return ConfigMapStore(clients.cluster, clients.settings.k8s_namespace, name, labels=labels)
