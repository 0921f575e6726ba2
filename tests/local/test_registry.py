"""The registry's answers, as recorded call by call on docker-registry 2.8.2."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from local.image_formats import DOCKER, OCI
from local.registry import SCHEMA1

BOTH = f"{OCI}, {DOCKER}"
NOTHING = "sha256:" + "0" * 64


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass
class Answer:
    status: int
    headers: Any
    body: bytes

    @property
    def errors(self) -> list[dict[str, Any]]:
        return json.loads(self.body)["errors"]

    @property
    def first(self) -> tuple[int, str]:
        return self.status, self.errors[0]["code"]


class Client:
    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session, self.base = session, f"http://{address}/v2/"

    async def __call__(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        url = path if path.startswith("http") else self.base + path
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        async with self.session.request(method, url, data=body, headers=named) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def upload(self, repository: str, data: bytes) -> str:
        started = await self("POST", f"{repository}/blobs/uploads/")
        ended = await self("PUT", f"{started.headers['Location']}&digest={digest_of(data)}", data)
        assert ended.status == 201
        return digest_of(data)

    async def push(self, repository: str, tag: str, kind: str) -> str:
        config, layer = b'{"config":{}}', b"a layer"
        parts = [
            {"digest": await self.upload(repository, part), "size": len(part)} for part in (config, layer)
        ]
        manifest = {"schemaVersion": 2, "mediaType": kind, "config": parts[0], "layers": parts[1:]}
        body = json.dumps(manifest).encode()
        pushed = await self("PUT", f"{repository}/manifests/{tag}", body, Content_Type=kind)
        assert (pushed.status, pushed.headers["Docker-Content-Digest"]) == (201, digest_of(body))
        return digest_of(body)


@pytest.fixture
async def registry(images):
    async with aiohttp.ClientSession() as session:
        yield Client(session, images.address)


async def test_images_have_a_tag_a_digest_and_a_type_for_each_client(registry):
    answer = await registry("GET", "")
    assert (answer.status, answer.body) == (200, b"{}")
    assert answer.headers["Docker-Distribution-Api-Version"] == "registry/2.0"
    await registry.push("exp", "abc", OCI)
    for accept in ("*/*", DOCKER):
        answer = await registry("GET", "exp/manifests/abc", Accept=accept)
        assert answer.first == (404, "MANIFEST_UNKNOWN")
        assert "accept header does not support OCI manifests" in answer.errors[0]["message"]
    digest = await registry.push("exp", "abc", DOCKER)
    answer = await registry("HEAD", "exp/manifests/abc", Accept=OCI)
    assert answer.headers["Content-Type"] == SCHEMA1
    assert answer.headers["Docker-Content-Digest"] != digest
    by_digest = await registry("HEAD", f"exp/manifests/{digest}")
    assert by_digest.headers["Docker-Content-Digest"] == digest


@pytest.mark.parametrize("kind", [DOCKER, OCI])
async def test_image_is_found_by_tag_and_digest(kind, registry):
    digest = await registry.push("exp/vision", "abc", kind)
    for reference in ("abc", digest):
        answer = await registry("HEAD", f"exp/vision/manifests/{reference}", Accept=BOTH)
        assert answer.headers["Docker-Content-Digest"] == digest
        assert answer.headers["Content-Type"] == kind


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (
            "a/b/manifests/x",
            {"code": "MANIFEST_UNKNOWN", "message": "manifest unknown", "detail": {"Tag": "x"}},
        ),
        (
            f"a/blobs/{NOTHING}",
            {"code": "BLOB_UNKNOWN", "message": "blob unknown to registry", "detail": NOTHING},
        ),
    ],
)
async def test_missing_objects_are_not_found(path, error, registry):
    answer = await registry("GET", path)
    assert (answer.status, answer.errors) == (404, [error])


async def test_blob_belongs_to_its_repository_until_mounted(registry):
    blob = await registry.upload("one", b"data")
    assert (await registry("GET", f"two/blobs/{blob}")).first == (404, "BLOB_UNKNOWN")
    assert (await registry("POST", f"two/blobs/uploads/?mount={blob}&from=nobody")).status == 202
    mounted = await registry("POST", f"two/blobs/uploads/?mount={blob}&from=one")
    assert (mounted.status, mounted.headers["Docker-Content-Digest"]) == (201, blob)
    assert (await registry("GET", f"two/blobs/{blob}")).body == b"data"


async def test_uploads_and_manifests_must_be_valid(registry):
    async def begin() -> str:
        return (await registry("POST", "a/blobs/uploads/")).headers["Location"]

    wrong = await registry("PUT", f"{await begin()}&digest={NOTHING}", b"data")
    no_digest = await registry("PUT", await begin(), b"data")
    stateless = await registry("PUT", f"{(await begin()).split('?')[0]}?digest={digest_of(b'data')}", b"data")
    assert [answer.first for answer in (wrong, no_digest, stateless)] == [
        (400, "DIGEST_INVALID"),
        (400, "DIGEST_INVALID"),
        (404, "BLOB_UPLOAD_INVALID"),
    ]
    parts = {"config": {"digest": NOTHING}, "layers": [{"digest": NOTHING}]}
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI} | parts).encode()
    empty = await registry("PUT", "a/manifests/x", body, Content_Type=OCI)
    assert (
        empty.errors
        == [{"code": "MANIFEST_BLOB_UNKNOWN", "message": "blob unknown to registry", "detail": NOTHING}] * 2
    )
    other_type = await registry("PUT", "a/manifests/x", body, Content_Type=DOCKER)
    no_json = await registry("PUT", "a/manifests/x", b"{", Content_Type=OCI)
    other_digest = await registry("PUT", f"a/manifests/{NOTHING}", body, Content_Type=OCI)
    assert [answer.first for answer in (other_type, no_json, other_digest)] == [
        (400, "MANIFEST_INVALID"),
        (400, "MANIFEST_INVALID"),
        (400, "DIGEST_INVALID"),
    ]
