"""Assemble an image from layers, config, and manifest, and push it to a registry."""

import gzip
import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.image_formats import DOCKER, digest_of
from local.image_pull import Reference, registry_request
from local.kaniko.options import Stop

CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
LAYER_TYPE = "application/vnd.docker.image.rootfs.diff.tar.gzip"
Stats = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Layer:
    """A layer in a local file, or in the repository it was pulled from."""

    digest: str
    diff_id: str
    size: int
    source: Path | Reference


@dataclass
class Draft:
    """An image being built; `config` has Env, Cmd, and so on."""

    created: str
    config: dict[str, Any] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)

    def documents(self) -> tuple[bytes, bytes]:
        """Return config and manifest."""
        rootfs = {"type": "layers", "diff_ids": [layer.diff_id for layer in self.layers]}
        head = {"architecture": "amd64", "os": "linux", "created": self.created}
        config = json.dumps({**head, "config": self.config, "rootfs": rootfs}).encode()
        described = {"mediaType": CONFIG_TYPE, "size": len(config), "digest": digest_of(config)}
        layers = [{"mediaType": LAYER_TYPE, "size": x.size, "digest": x.digest} for x in self.layers]
        manifest = {"schemaVersion": 2, "mediaType": DOCKER, "config": described, "layers": layers}
        return config, json.dumps(manifest).encode()

    def push(self, to: Reference) -> str:
        """Push and return the digest. Raises Stop."""
        config, manifest = self.documents()
        path = f"/v2/{to.repository}/manifests/{to.tag}"
        with reaching(to):
            for layer in self.layers:
                _send(to, layer.digest, layer.source)
            _send(to, digest_of(config), config)
            with registry_request(to.host, "PUT", path, manifest, {"Content-Type": DOCKER}) as answer:
                _expect(201, answer.status, f"PUT http://{to.host}{path}")
        return digest_of(manifest)


@contextmanager
def reaching(to: Reference) -> Iterator[None]:
    """Send a request. Raises Stop if the registry is unreachable."""
    try:
        yield
    except OSError as error:
        raise Stop(f'Get "http://{to.host}/v2/": dial tcp {to.host}: connect: {error.strerror}') from error


def _send(to: Reference, digest: str, source: Path | Reference | bytes) -> None:
    """Upload a blob, or mount it from the repository that has it."""
    uploads = f"/v2/{to.repository}/blobs/uploads/"
    with registry_request(to.host, "HEAD", f"/v2/{to.repository}/blobs/{digest}") as answer:
        if answer.status == 200:
            return
    if isinstance(source, Reference):
        with registry_request(
            to.host, "POST", f"{uploads}?mount={digest}&from={source.repository}"
        ) as answer:
            _expect(201, answer.status, f"POST http://{to.host}{uploads}")
        return
    with registry_request(to.host, "POST", uploads) as answer:
        location = (answer.getheader("Location") or "").split(to.host, 1)[-1]
    body = source.read_bytes() if isinstance(source, Path) else source
    with registry_request(to.host, "PUT", f"{location}&digest={digest}", body) as answer:
        _expect(201, answer.status, f"PUT http://{to.host}{uploads}")


def _expect(wanted: int, status: int, what: str) -> None:
    if status != wanted:
        raise Stop(f"{what}: unexpected status code {status}")


def stats(rootfs: Path) -> Stats:
    """Return a fingerprint of every path below rootfs; times of directories don't count."""
    found = {}
    for path in rootfs.rglob("*"):
        info, is_folder = path.lstat(), path.is_dir() and not path.is_symlink()
        changes = () if is_folder else (info.st_size, info.st_mtime_ns, info.st_ino)
        found[str(path.relative_to(rootfs))] = (info.st_mode, *changes)
    return found


def pack(
    rootfs: Path, changed: list[str], target: Path, owned: Callable[[tarfile.TarInfo], tarfile.TarInfo]
) -> Layer:
    """Return a reproducible gzipped tar of the files."""
    plain = target.with_suffix(".tar")
    with tarfile.open(plain, "w") as tar:
        for path in changed:
            tar.add(rootfs / path, path, recursive=False, filter=owned)
    with (
        plain.open("rb") as source,
        target.open("wb") as packed,
        gzip.GzipFile("", "wb", 6, packed, mtime=0) as zipped,
    ):
        shutil.copyfileobj(source, zipped)
    layer = Layer(_digest_of(target), _digest_of(plain), target.stat().st_size, target)
    plain.unlink()
    return layer


def _digest_of(file: Path) -> str:
    with file.open("rb") as opened:
        return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"
