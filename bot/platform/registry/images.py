"""Image names, and composing two images into one. Pure.

An image is a manifest (a list of layers) and a config (what to run, and the digests of the unpacked layers),
so two images are composed by writing two documents, without moving a layer. Hand-written: `crane append` and
Buildah do the same as Go programs, and no maintained Python library does it.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Self

Json = dict[str, Any]

OCI = "application/vnd.oci.image.manifest.v1+json"
DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
CONFIG = {
    OCI: "application/vnd.oci.image.config.v1+json",
    DOCKER: "application/vnd.docker.container.image.v1+json",
}
# The same bytes under both media types; zstd has one only in OCI.
LAYER = {
    OCI: "application/vnd.oci.image.layer.v1.tar+gzip",
    DOCKER: "application/vnd.docker.image.rootfs.diff.tar.gzip",
}
# distribution's reference grammar: without `..`, which a URL would resolve to its parent.
DNS_LABEL = "[a-z0-9]+(?:-+[a-z0-9]+)*"
PATH_COMPONENT = "[a-z0-9]+(?:(?:[.]|_{1,2}|-+)[a-z0-9]+)*"
IMAGE_NAME = re.compile(
    rf"((?:{DNS_LABEL}(?:[.]{DNS_LABEL})*(?::[0-9]{{1,5}})?/)?{PATH_COMPONENT}(?:/{PATH_COMPONENT})*)"
    r"(?::(\w[\w.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
MAX_IMAGE_NAME = 500  # characters of a name


@dataclass(frozen=True)
class ImageName:
    """`registry/repository:tag@digest`; without a registry it is docker.io's."""

    registry: str
    repository: str
    tag: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError if `text` is not an image name."""
        match = IMAGE_NAME.fullmatch(text) if len(text) <= MAX_IMAGE_NAME else None
        if not match:
            raise ValueError(f"{text[:100]} isn't an image name, such as registry.example/team/image:tag")
        first, slash, rest = match[1].partition("/")
        if not slash or not re.search(r"[.:]|^localhost$", first):
            first, rest = "docker.io", match[1]
        if first == "docker.io" and "/" not in rest:
            rest = f"library/{rest}"
        return cls(first, rest, match[2] or ("" if match[3] else "latest"), match[3] or "")

    def at(self, digest: str) -> str:
        return f"{self.registry}/{self.repository}@{digest}"


@dataclass(frozen=True)
class ImageRef:
    """An image of one registry, by tag or by digest."""

    repository: str
    tag: str  # or a digest, which no push can move

    def __str__(self) -> str:
        return f"{self.repository}{'@' if ':' in self.tag else ':'}{self.tag}"


@dataclass(frozen=True)
class Image:
    manifest: Json
    config: Json

    @property
    def type(self) -> str:
        return str(self.manifest["mediaType"])


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def for_linux(index: Json) -> str | None:
    """Return the digest of an index's image for linux/amd64."""
    for entry in index.get("manifests", []):
        platform = entry.get("platform", {})
        if (platform.get("os"), platform.get("architecture")) == ("linux", "amd64"):
            return str(entry["digest"])
    return None


def composed(below: Image, above: Image) -> tuple[bytes, bytes]:
    """Return config and manifest of `below` with the layers of `above` on top; `below` has the entry point.

    Deterministic, so composing can be repeated.
    """
    diff_ids = below.config["rootfs"]["diff_ids"] + above.config["rootfs"]["diff_ids"]
    document = {**below.config, "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    if "history" in below.config and "history" in above.config:
        document["history"] = below.config["history"] + above.config["history"]
    else:
        document.pop("history", None)  # half of it would no longer match the number of layers
    config = json.dumps(document, sort_keys=True).encode()
    described = {"mediaType": CONFIG[below.type], "size": len(config), "digest": digest_of(config)}
    layers = [*below.manifest["layers"], *(_as(below.type, layer) for layer in above.manifest["layers"])]
    manifest = {"schemaVersion": 2, "mediaType": below.type, "config": described, "layers": layers}
    return config, json.dumps(manifest, sort_keys=True).encode()


def _as(manifest_type: str, layer: Json) -> Json:
    """Return the layer with the media type of the manifest: registries and containerd reject mixed types."""
    return {**layer, "mediaType": LAYER[manifest_type]} if layer["mediaType"] in LAYER.values() else layer
