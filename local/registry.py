"""An image registry, so that builds push and nodes pull over the same HTTP API as in a cluster.

It answers as `docker-registry` 2.8.2 does (compared call by call), its surprises included: without the right
Accept header an OCI image is "not found", and a Docker image by tag becomes schema 1, with another digest.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
OCI = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
SCHEMA1 = "application/vnd.docker.distribution.manifest.v1+prettyjws"

NAME = "{name:[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*}"
DIGEST = "{digest:sha256:[0-9a-f]{64}}"
REFERENCE = r"{reference:\w[\w.-]{0,127}|sha256:[0-9a-f]{64}}"
ALWAYS = {"Docker-Distribution-Api-Version": "registry/2.0", "X-Content-Type-Options": "nosniff"}
ERRORS = {
    "BLOB_UNKNOWN": (404, "blob unknown to registry"),
    "BLOB_UPLOAD_INVALID": (404, "blob upload invalid"),
    "BLOB_UPLOAD_UNKNOWN": (404, "blob upload unknown to registry"),
    "DIGEST_INVALID": (400, "provided digest did not match uploaded content"),
    "MANIFEST_BLOB_UNKNOWN": (400, "blob unknown to registry"),
    "MANIFEST_INVALID": (400, "manifest invalid"),
    "MANIFEST_UNKNOWN": (404, "manifest unknown"),
    "NAME_UNKNOWN": (404, "repository name not known to registry"),
}


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Registry:
    """A running registry at `address` ("127.0.0.1:PORT", plain http, no authentication)."""

    address: str
    runner: web.AppRunner

    async def close(self) -> None:
        await self.runner.cleanup()


async def serve(folder: Path, port: int = 0) -> Registry:
    """Keep images in `folder`; port 0 means any free one."""
    runner = web.AppRunner(_Api(folder).app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return Registry(f"127.0.0.1:{runner.addresses[0][1]}", runner)


class _Api:
    """Blobs lie in one folder; a repository only has links to those that were pushed or mounted to it."""

    def __init__(self, folder: Path) -> None:
        self.blobs, self.repositories, self.uploads = (
            folder / n for n in ("blobs", "repositories", "uploads")
        )
        for path in (self.blobs, self.repositories, self.uploads):
            path.mkdir(parents=True, exist_ok=True)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**40)
        add = app.router.add_route
        app.router.add_get("/v2/", self.version)
        app.router.add_get(f"/v2/{NAME}/manifests/{REFERENCE}", self.get_manifest)
        add("PUT", f"/v2/{NAME}/manifests/{REFERENCE}", self.put_manifest)
        app.router.add_get(f"/v2/{NAME}/blobs/{DIGEST}", self.get_blob)
        add("POST", f"/v2/{NAME}/blobs/uploads/", self.start_upload)
        add("PATCH", f"/v2/{NAME}/blobs/uploads/{{id}}", self.append)
        add("PUT", f"/v2/{NAME}/blobs/uploads/{{id}}", self.finish_upload)
        app.router.add_get(f"/v2/{NAME}/tags/list", self.tags)
        add("*", "/{anything:.*}", self.no_page)
        app.on_response_prepare.append(_always)
        return app

    async def version(self, _: web.Request) -> web.Response:
        return _json({})

    async def no_page(self, _: web.Request) -> web.Response:
        return web.Response(status=404, text="404 page not found\n")

    async def get_manifest(self, request: web.Request) -> web.Response:
        name, reference = _place(request)
        found = self._resolve(name, reference)
        if not found:
            by_digest = {"Name": name, "Revision": reference}
            return _error("MANIFEST_UNKNOWN", by_digest if ":" in reference else {"Tag": reference})
        digest, kind = found
        body, accepted = self._blob(digest).read_bytes(), set(_accepted(request))
        if kind in (OCI, OCI_INDEX) and kind not in accepted:
            one, many = ("index", "indexes") if kind == OCI_INDEX else ("manifest", "manifests")
            text = f"OCI {one} found, but accept header does not support OCI {many}"
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
        if problem := self._problem(name, kind, body):
            return problem
        self._blob(digest).write_bytes(body)
        self._write(name, f"manifests/{digest}", kind)
        if ":" not in reference:
            self._write(name, f"tags/{reference}", digest)
        return _created(request, f"/v2/{name}/manifests/{digest}", digest)

    def _problem(self, name: str, kind: str, body: bytes) -> web.Response | None:
        """Refuse a manifest that isn't one, or that names what this repository does not hold."""
        try:
            manifest = json.loads(body)
            assert manifest["schemaVersion"] == 2 and kind in (DOCKER, DOCKER_LIST, OCI, OCI_INDEX)  # noqa: S101, PT018
            parts = (
                manifest["manifests"]
                if "manifests" in manifest
                else [manifest["config"], *manifest["layers"]]
            )
            needed = [part["digest"] for part in parts]
            assert manifest.get("mediaType", kind) == kind  # noqa: S101
        except (ValueError, KeyError, TypeError, AssertionError):
            return _error("MANIFEST_INVALID", {})
        place = "manifests" if "manifests" in manifest else "layers"
        missing = [digest for digest in needed if not self._link(name, f"{place}/{digest}").exists()]
        return _error("MANIFEST_BLOB_UNKNOWN", *missing) if missing else None

    async def get_blob(self, request: web.Request) -> web.StreamResponse:
        name, digest = request.match_info["name"], request.match_info["digest"]
        if not self._link(name, f"layers/{digest}").exists():
            return _error("BLOB_UNKNOWN", digest)
        headers = {"Docker-Content-Digest": digest, "Content-Type": "application/octet-stream"}
        return web.FileResponse(self._blob(digest), headers=headers)

    async def start_upload(self, request: web.Request) -> web.Response:
        name, mount, source = (
            request.match_info["name"],
            request.query.get("mount"),
            request.query.get("from"),
        )
        if mount and source and self._link(source, f"layers/{mount}").exists():
            self._write(name, f"layers/{mount}", "")
            return _created(request, f"/v2/{name}/blobs/{mount}", mount)
        upload = str(uuid.uuid4())
        (self.uploads / upload).touch()
        return self._accepted(request, upload)

    async def append(self, request: web.Request) -> web.Response:
        if refused := await self._receive(request):
            return refused
        return self._accepted(request, request.match_info["id"])

    async def finish_upload(self, request: web.Request) -> web.Response:
        name, digest = request.match_info["name"], request.query.get("digest", "")
        if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
            return _error("DIGEST_INVALID", "digest missing")
        if refused := await self._receive(request):
            return refused
        upload = self.uploads / request.match_info["id"]
        with upload.open("rb") as file:
            real = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        if real != digest:
            upload.unlink()
            return _error("DIGEST_INVALID", {"Digest": digest, "Reason": {}})
        upload.replace(self._blob(digest))
        self._write(name, f"layers/{digest}", "")
        return _created(request, f"/v2/{name}/blobs/{digest}", digest)

    async def tags(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        folder = self._link(name, "tags")
        if not folder.is_dir():
            return _error("NAME_UNKNOWN", {"name": name})
        return _json({"name": name, "tags": sorted(path.name for path in folder.iterdir())})

    async def _receive(self, request: web.Request) -> web.Response | None:
        """Add the body to an upload. Its Location carries a state that clients must give back."""
        upload = request.match_info["id"]
        if request.query.get("_state") != _state(upload):
            return _error("BLOB_UPLOAD_INVALID", {})
        if not (self.uploads / upload).exists():
            return _error("BLOB_UPLOAD_UNKNOWN")
        with (self.uploads / upload).open("ab") as file:
            async for chunk in request.content.iter_chunked(2**20):
                file.write(chunk)
        return None

    def _accepted(self, request: web.Request, upload: str) -> web.Response:
        name, size = request.match_info["name"], (self.uploads / upload).stat().st_size
        location = f"http://{request.host}/v2/{name}/blobs/uploads/{upload}?_state={_state(upload)}"
        headers = {"Location": location, "Docker-Upload-UUID": upload, "Range": f"0-{max(size - 1, 0)}"}
        return web.Response(status=202, headers=headers)

    def _resolve(self, name: str, reference: str) -> tuple[str, str] | None:
        tag = self._link(name, f"tags/{reference}")
        digest = tag.read_text() if tag.exists() else reference
        manifest = self._link(name, f"manifests/{digest}")
        return (digest, manifest.read_text()) if manifest.exists() else None

    def _blob(self, digest: str) -> Path:
        return self.blobs / digest.removeprefix("sha256:")

    def _link(self, name: str, what: str) -> Path:
        return self.repositories / name.replace("/", "+") / what

    def _write(self, name: str, what: str, text: str) -> None:
        path = self._link(name, what)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def _always(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(ALWAYS)
    if response.status == 200 and (digest := response.headers.get("Docker-Content-Digest")):
        response.headers["Etag"] = f'"{digest}"'


def _place(request: web.Request) -> tuple[str, str]:
    return request.match_info["name"], request.match_info["reference"]


def _accepted(request: web.Request) -> Iterator[str]:
    for header in request.headers.getall("Accept", []):
        for part in header.split(","):
            yield part.split(";")[0].strip()


def _state(upload: str) -> str:
    return hashlib.sha256(upload.encode()).hexdigest()[:16]


def _json(value: Any, status: int = 200) -> web.Response:
    text = json.dumps(value, separators=(",", ":")) + ("\n" if value else "")
    return web.json_response(text=text, status=status)


def _error(code: str, *details: Any, message: str = "") -> web.Response:
    """One error for each detail, or one without."""
    status, text = ERRORS[code]
    said = {"code": code, "message": message or text}
    return _json({"errors": [said | {"detail": detail} for detail in details] or [said]}, status)


def _created(request: web.Request, path: str, digest: str) -> web.Response:
    headers = {"Location": f"http://{request.host}{path}", "Docker-Content-Digest": digest}
    return web.Response(status=201, headers=headers)


def _schema1(name: str, tag: str, manifest: dict[str, Any]) -> bytes:
    """As much of the old format as shows that it is another document than the one asked for."""
    layers = [{"blobSum": layer["digest"]} for layer in reversed(manifest["layers"])]
    old = {"schemaVersion": 1, "name": name, "tag": tag, "architecture": "amd64", "fsLayers": layers}
    return json.dumps(old, indent=3).encode()
