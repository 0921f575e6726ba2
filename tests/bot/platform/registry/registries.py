"""Registries to put images together in: the local one, and Debian's docker-registry where it is installed."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from bench import distribution
from local import registry
from local.processes import Processes

HTPASSWD = "auth: {{htpasswd: {{realm: lab, path: {file}}}}}"
# bot:secret, as `htpasswd -B` writes it
BOT_SECRET = "bot:$2b$05$ls5sfm2tqENb9ZYO4WkQhuXrwddUrQZjE9TBHZM/LM8Ug.CJMLzBW\n"


@asynccontextmanager
async def a_registry(kind: str, folder: Path, *, password: bool = False) -> AsyncIterator[str]:
    """Host and port. `kind`: "local" or "distribution", which is skipped where it isn't installed."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    if kind == "local":
        server = await registry.serve(folder)
        yield server.address
        await server.close()
        return
    if not distribution.is_installed():
        pytest.skip("Debian's docker-registry isn't installed")
    auth = ""
    if password:
        (folder / "htpasswd").write_text(BOT_SECRET)
        auth = HTPASSWD.format(file=folder / "htpasswd")
    processes = Processes(folder)
    try:
        yield await distribution.start(folder, processes, auth)
    finally:
        await processes.stop_all()


def knows(user, password):
    """Return credentials for Registry."""

    async def login():
        return user, password

    return login


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Pusher:
    """What a builder does: blobs, then the manifest that names them."""

    def __init__(self, address: str, credentials: tuple[str, str] | None = None) -> None:
        self.base = f"http://{address}/v2"
        basic = aiohttp.encode_basic_auth(*credentials) if credentials else ""
        self.headers = {"Authorization": basic} if basic else {}

    async def call(self, method, url, data=None, **headers):
        async with aiohttp.ClientSession(headers=self.headers) as session:
            url = url if url.startswith("http") else f"{self.base}/{url}"
            async with session.request(method, url, data=data, headers=headers) as answer:
                return answer.status, answer.headers, await answer.read()

    async def blob(self, repository, data):
        _, headers, _ = await self.call("POST", f"{repository}/blobs/uploads/")
        status, _, _ = await self.call("PUT", f"{headers['Location']}&digest={digest_of(data)}", data)
        assert status == 201
        return {"digest": digest_of(data), "size": len(data)}

    async def image(self, repository, tag, types, layers, config):
        """`types`: media types of manifest, config and layers."""
        document = {"rootfs": {"type": "layers", "diff_ids": [digest_of(b"-" + x) for x in layers]}, **config}
        described = {"mediaType": types[1], **await self.blob(repository, json.dumps(document).encode())}
        blobs = [{"mediaType": types[2], **await self.blob(repository, layer)} for layer in layers]
        return await self.manifest(
            repository, tag, {"mediaType": types[0], "config": described, "layers": blobs}
        )

    async def manifest(self, repository, tag, manifest):
        body = json.dumps({"schemaVersion": 2, **manifest}).encode()
        where = f"{repository}/manifests/{tag}"
        status, headers, message = await self.call(
            "PUT", where, body, **{"Content-Type": manifest["mediaType"]}
        )
        assert status == 201, message
        return headers["Docker-Content-Digest"], len(body)
