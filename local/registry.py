"""An image registry, with the same HTTP API as in a cluster.

It answers as `docker-registry` 2.8.2 does (compared call by call), its surprises included: without the right
Accept header an OCI image is "not found", and a Docker image by tag becomes schema 1, with another digest.
It takes uploads in one piece and no image indexes: nothing here sends others.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

from local.image_formats import DOCKER, OCI, digest_of
from local.serving import Server, listen

SCHEMA1 = "application/vnd.docker.distribution.manifest.v1+prettyjws"

NAME = "{name:[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*}"
DIGEST = "{digest:sha256:[0-9a-f]{64}}"
REFERENCE = r"{reference:\w[\w.-]{0,127}|sha256:[0-9a-f]{64}}"
ERRORS = {
    "BLOB_UNKNOWN": (404, "blob unknown to registry"),
    "BLOB_UPLOAD_INVALID": (404, "blob upload invalid"),
    "DENIED": (403, "requested access to the resource is denied"),
    "DIGEST_INVALID": (400, "provided digest did not match uploaded content"),
    "MANIFEST_BLOB_UNKNOWN": (400, "blob unknown to registry"),
    "MANIFEST_INVALID": (400, "manifest invalid"),
    "MANIFEST_UNKNOWN": (404, "manifest unknown"),
    "NAME_UNKNOWN": (404, "repository name not known to registry"),
}


async def serve(folder: Path) -> Server:
    """Start a registry with images in `folder`, without authentication."""
    return await listen(_Api(folder).app())


class _Api:
    """Blobs are in one directory; a repository has links to those that were pushed or mounted."""

    def __init__(self, folder: Path) -> None:
        self.blobs, self.repositories = folder / "blobs", folder / "repositories"
        self.blobs.mkdir(parents=True, exist_ok=True)
        self.uploads: set[str] = set()  # valid upload locations

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**40)
        add = app.router.add_route
        add("GET", "/v2/", self.version)
        app.router.add_get(f"/v2/{NAME}/manifests/{REFERENCE}", self.get_manifest)
        add("PUT", f"/v2/{NAME}/manifests/{REFERENCE}", self.put_manifest)
        add("DELETE", f"/v2/{NAME}/manifests/{DIGEST}", self.delete_manifest)
        app.router.add_get(f"/v2/{NAME}/tags/list", self.list_tags)
        app.router.add_get(f"/v2/{NAME}/blobs/{DIGEST}", self.get_blob)
        add("POST", f"/v2/{NAME}/blobs/uploads/", self.start_upload)
        add("PUT", f"/v2/{NAME}/blobs/uploads/{{id}}", self.upload)
        app.on_response_prepare.append(_always)
        return app

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response({})

    async def get_manifest(self, request: web.Request) -> web.Response:
        name, reference = _place(request)
        tag = self._link(name, f"tags/{reference}")
        digest = tag.read_text() if tag.exists() else reference
        manifest = self._link(name, f"manifests/{digest}")
        if not manifest.exists():
            by_digest = {"Name": name, "Revision": reference}
            return _error("MANIFEST_UNKNOWN", by_digest if ":" in reference else {"Tag": reference})
        kind, body, accepted = manifest.read_text(), self._blob(digest).read_bytes(), set(_accepted(request))
        if kind == OCI and OCI not in accepted:
            text = "OCI manifest found, but accept header does not support OCI manifests"
            return _error("MANIFEST_UNKNOWN", message=text)
        if kind == DOCKER and DOCKER not in accepted and ":" not in reference:
            body, kind = _schema1(name, reference, json.loads(body)), SCHEMA1
            digest = digest_of(body)
        return web.Response(body=body, headers={"Content-Type": kind, "Docker-Content-Digest": digest})

    async def put_manifest(self, request: web.Request) -> web.Response:
        name, reference = _place(request)
        body, kind = await request.read(), request.content_type
        digest = digest_of(body)
        if ":" in reference and reference != digest:
            return _error("DIGEST_INVALID")
        parts = _parts(kind, body)
        if parts is None:
            return _error("MANIFEST_INVALID", {})
        if missing := [part for part in parts if not self._link(name, f"layers/{part}").exists()]:
            return _error("MANIFEST_BLOB_UNKNOWN", *missing)
        self._blob(digest).write_bytes(body)
        self._write(name, f"manifests/{digest}", kind)
        if ":" not in reference:
            self._write(name, f"tags/{reference}", digest)
        return _created(request, f"manifests/{digest}", digest)

    async def delete_manifest(self, request: web.Request) -> web.Response:
        """Delete the manifest and its tags, as with `storage.delete.enabled`."""
        name, digest = request.match_info["name"], request.match_info["digest"]
        manifest = self._link(name, f"manifests/{digest}")
        if not manifest.exists():
            return _error("MANIFEST_UNKNOWN", {"Name": name, "Revision": digest})
        for tag in self._link(name, "tags").iterdir():
            if tag.read_text() == digest:
                tag.unlink()
        manifest.unlink()
        return web.Response(status=202)

    async def list_tags(self, request: web.Request) -> web.Response:
        name, tags = request.match_info["name"], self._link(request.match_info["name"], "tags")
        if not tags.exists():
            return _error("NAME_UNKNOWN", {"name": name})
        after, number = request.query.get("last", ""), int(request.query.get("n", 100))
        names = sorted(tag.name for tag in tags.iterdir() if tag.name > after)
        page, more = names[:number], names[number:]
        link = {"Link": f'</v2/{name}/tags/list?last={page[-1]}&n={number}>; rel="next"'} if more else {}
        return web.json_response({"name": name, "tags": page}, headers=link)

    async def get_blob(self, request: web.Request) -> web.StreamResponse:
        name, digest = request.match_info["name"], request.match_info["digest"]
        if not self._link(name, f"layers/{digest}").exists():
            return _error("BLOB_UNKNOWN", digest)
        headers = {"Docker-Content-Digest": digest, "Content-Type": "application/octet-stream"}
        return web.FileResponse(self._blob(digest), headers=headers)

    async def start_upload(self, request: web.Request) -> web.Response:
        """Start an upload; its Location has a state that clients must send back."""
        name, mount, source = (
            request.match_info["name"],
            request.query.get("mount"),
            request.query.get("from"),
        )
        if self._link(name, "read-only").exists():
            return _error("DENIED")
        if mount and source and self._link(source, f"layers/{mount}").exists():
            self._write(name, f"layers/{mount}", "")
            return _created(request, f"blobs/{mount}", mount)
        location = f"/v2/{name}/blobs/uploads/{uuid.uuid4()}?_state={uuid.uuid4().hex}"
        self.uploads.add(location)
        return web.Response(status=202, headers={"Location": f"http://{request.host}{location}"})

    async def upload(self, request: web.Request) -> web.Response:
        name, digest = request.match_info["name"], request.query.get("digest", "")
        location = f"{request.path}?_state={request.query.get('_state')}"
        if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
            return _error("DIGEST_INVALID", "digest missing")
        if location not in self.uploads:
            return _error("BLOB_UPLOAD_INVALID", {})
        self.uploads.remove(location)
        partial, sha = self.blobs / request.match_info["id"], hashlib.sha256()
        with partial.open("wb") as file:
            async for chunk in request.content.iter_chunked(2**20):
                file.write(chunk)
                sha.update(chunk)
        if f"sha256:{sha.hexdigest()}" != digest:
            partial.unlink()
            return _error("DIGEST_INVALID", {"Digest": digest, "Reason": {}})
        partial.replace(self._blob(digest))
        self._write(name, f"layers/{digest}", "")
        return _created(request, f"blobs/{digest}", digest)

    def _blob(self, digest: str) -> Path:
        return self.blobs / digest.removeprefix("sha256:")

    def _link(self, name: str, what: str) -> Path:
        return self.repositories / name.replace("/", "+") / what

    def _write(self, name: str, what: str, text: str) -> None:
        path = self._link(name, what)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def _always(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Docker-Distribution-Api-Version"] = "registry/2.0"


def _place(request: web.Request) -> tuple[str, str]:
    return request.match_info["name"], request.match_info["reference"]


def _accepted(request: web.Request) -> Iterator[str]:
    for header in request.headers.getall("Accept", []):
        for part in header.split(","):
            yield part.split(";")[0].strip()


def _parts(kind: str, body: bytes) -> list[str] | None:
    """Return the blobs of an image manifest; None for another document."""
    try:
        manifest = json.loads(body)
        good = (
            manifest["schemaVersion"] == 2
            and kind in (DOCKER, OCI)
            and manifest.get("mediaType", kind) == kind
        )
        return [part["digest"] for part in (manifest["config"], *manifest["layers"])] if good else None
    except (ValueError, KeyError, TypeError):
        return None


def _error(code: str, *details: Any, message: str = "") -> web.Response:
    """Return an error response, with one error per detail."""
    status, text = ERRORS[code]
    error = {"code": code, "message": message or text}
    return web.json_response(
        {"errors": [error | {"detail": detail} for detail in details] or [error]}, status=status
    )


def _created(request: web.Request, what: str, digest: str) -> web.Response:
    location = f"http://{request.host}/v2/{request.match_info['name']}/{what}"
    return web.Response(status=201, headers={"Location": location, "Docker-Content-Digest": digest})


def _schema1(name: str, tag: str, manifest: dict[str, Any]) -> bytes:
    """Convert to the old format, just enough to differ from the requested document."""
    layers = [{"blobSum": layer["digest"]} for layer in reversed(manifest["layers"])]
    old = {"schemaVersion": 1, "name": name, "tag": tag, "architecture": "amd64", "fsLayers": layers}
    return json.dumps(old, indent=3).encode()
