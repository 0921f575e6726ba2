"""An OCI registry: find, compose, and delete images. Layers stay in the registry.

Hand-written on aiohttp: the Python clients that exist are synchronous, and push or pull whole images.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import aiohttp
from yarl import URL

from bot.registry.images import DOCKER, INDEXES, OCI, Image, Json, Place, composed, digest_of, for_linux

# All four in one header. Without the right type registries convert, and answer the digest of something nobody
# can pull, or 404 for an image that is there (distribution 2.8).
MANIFESTS = ", ".join((OCI, DOCKER, *INDEXES))
TIMEOUT = aiohttp.ClientTimeout(total=5)  # seconds
COPY = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=60)  # seconds; a layer may be gigabytes
TOKEN_LIFE = 60  # seconds, when a token does not say: the least that the specification allows
PAGE = 1000  # tags
MOST_JSON = 4 * 2**20  # bytes: no registry takes a larger manifest
HUB, HUB_API = "docker.io", "registry-1.docker.io"


class RegistryError(Exception):
    """The registry did not answer, or failed; the message names it."""


class ImageMissingError(RegistryError):
    """The image doesn't exist."""


class Registry:
    """A registry by its host and port. Made inside a running event loop; close it.

    `insecure`: plain HTTP. `credentials`: user and password (or token); private images need them.
    """

    def __init__(
        self, api: str, *, insecure: bool = False, credentials: tuple[str, str] | None = None
    ) -> None:
        self._host = HUB_API if api == HUB else api
        self._insecure = insecure
        self._url = URL(f"{'http' if insecure else 'https'}://{self._host}")
        self._basic = aiohttp.encode_basic_auth(*credentials) if credentials else ""
        self._allowed: dict[str, tuple[str, float]] = {}  # scope -> Authorization, and until when
        self._session = aiohttp.ClientSession(timeout=TIMEOUT, trust_env=True)

    async def close(self) -> None:
        await self._session.close()

    async def digest(self, repository: str, tag: str) -> str | None:
        """`sha256:...` of the image or index with this tag or digest; None when there is none.

        Raises RegistryError.
        """
        path = f"/v2/{repository}/manifests/{tag}"
        async with self._ask("HEAD", path, _pull(repository), headers={"Accept": MANIFESTS}) as answer:
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise self._refused(f"{answer.status} for {repository}:{tag}")
            if "Docker-Content-Digest" not in answer.headers:
                raise self._refused(f"no digest for {repository}:{tag}")
            return answer.headers["Docker-Content-Digest"]

    async def tags(self, repository: str) -> list[str]:
        """Empty when there is no such repository. Raises RegistryError."""
        found: list[str] = []
        page = f"/v2/{repository}/tags/list?n={PAGE}"
        while page:
            async with self._ask("GET", page, _pull(repository)) as answer:
                if answer.status == 404:
                    return found
                found += (await self._json(answer, f"the tags of {repository}")).get("tags") or []
                page = str(answer.links["next"]["url"]) if "next" in answer.links else ""
        return found

    async def delete(self, place: Place) -> bool:
        """With all other tags of the same image; False when there is none. Raises RegistryError."""
        digest = await self.digest(place.repository, place.tag)
        path, scope = f"/v2/{place.repository}/manifests/{digest}", f"{_pull(place.repository)},delete"
        if not digest:
            return False
        async with self._ask("DELETE", path, scope) as answer:
            if answer.status == 405:  # distribution's default
                raise RegistryError(f"the registry {self._host} allows no deletions (storage.delete.enabled)")
            if answer.status not in {200, 202, 404}:
                raise self._refused(f"{answer.status} to the deletion of {place}")
            return answer.status != 404

    async def compose(self, to: Place, below: Place, above: Place) -> str:
        """Tag `to` the image of `below` with the layers of `above` on top; its digest. Raises RegistryError.

        Missing: one of the two is not there. May be repeated.
        """
        under, over = await self._image(below), await self._image(above)
        config, manifest = composed(under, over)
        await self._upload(to.repository, digest_of(config), config)
        if not await self._put(to, under.type, manifest):
            # The layers lie in other repositories: the first image of a project, or with new dependencies.
            for place, image in ((below, under), (above, over)):
                for layer in image.manifest["layers"]:
                    await self._mount(to.repository, layer["digest"], place.repository)
            if not await self._put(to, under.type, manifest):
                raise self._refused(f"that it lacks layers of {to} which it has just taken")
        return digest_of(manifest)

    async def _image(self, place: Place) -> Image:
        manifest = await self._manifest(place, place.tag)
        if manifest.get("mediaType") in INDEXES:
            chosen = for_linux(manifest)
            if chosen is None:
                raise ImageMissingError(f"{place} in the registry {self._host} is not for linux on amd64")
            manifest = await self._manifest(place, chosen)
        path = f"/v2/{place.repository}/blobs/{manifest['config']['digest']}"
        async with self._ask("GET", path, _pull(place.repository)) as answer:
            what = f"the config of {place}"
            return Image(manifest, await self._json(answer, what, manifest["config"]["digest"]))

    async def _manifest(self, place: Place, reference: str) -> Json:
        path = f"/v2/{place.repository}/manifests/{reference}"
        async with self._ask("GET", path, _pull(place.repository), headers={"Accept": MANIFESTS}) as answer:
            return {"mediaType": answer.content_type, **await self._json(answer, str(place), reference)}

    async def _json(self, answer: aiohttp.ClientResponse, what: str, reference: str = "") -> Json:
        """`reference`: where it is a digest, the bytes must have it."""
        if answer.status == 404:
            raise ImageMissingError(f"{what} is not in the registry {self._host}")
        document = await self._document(answer)
        if answer.status == 200 and ":" in reference and digest_of(document) != reference:
            raise self._refused(f"other bytes than those of {reference} for {what}")
        body = _object(document) if answer.status == 200 else None
        if body is None:
            raise self._refused(f"{answer.status} for {what}")
        return body

    async def _document(self, answer: aiohttp.ClientResponse) -> bytes:
        """Whatever it unpacks to: a gzip of some kilobytes can be gigabytes."""
        found = bytearray()
        async for part in answer.content.iter_chunked(2**16):
            found += part
            if len(found) > MOST_JSON:
                raise self._refused(f"{answer.status} with more than {MOST_JSON // 2**20} MiB of JSON")
        return bytes(found)

    async def _put(self, to: Place, kind: str, manifest: bytes) -> bool:
        """False: the repository lacks some of its layers."""
        path, scope = f"/v2/{to.repository}/manifests/{to.tag}", _push(to.repository)
        async with self._ask("PUT", path, scope, manifest, headers={"Content-Type": kind}) as answer:
            if answer.status in {400, 404} and b"BLOB_UNKNOWN" in await self._document(answer):
                return False
            if answer.status != 201:
                raise self._refused(f"{answer.status} to the manifest of {to}")
            return True

    async def _upload(self, repository: str, digest: str, data: bytes) -> None:
        path, scope = f"/v2/{repository}/blobs/uploads/", _push(repository)
        async with self._ask("POST", path, scope) as answer:
            if answer.status != 202:
                raise self._refused(f"{answer.status} to an upload to {repository}")
            place = answer.headers["Location"]
        await self._send(place, scope, digest, data)

    async def _send(self, place: str, scope: str, digest: str, data: Any) -> None:
        # As it was given: the state in it is signed.
        place = f"{place}{'&' if '?' in place else '?'}digest={digest}"
        async with self._ask("PUT", place, scope, data, patience=COPY) as answer:
            if answer.status != 201:
                raise self._refused(f"{answer.status} to an upload")

    async def _mount(self, repository: str, digest: str, source: str) -> None:
        """Have a layer in one more repository: by name, or where the registry won't, by carrying it over."""
        if source == repository:
            return
        path = f"/v2/{repository}/blobs/uploads/?mount={digest}&from={source}"
        async with self._ask("POST", path, f"{_push(repository)} {_pull(source)}") as answer:
            if answer.status == 201:
                return
            if answer.status != 202:
                raise self._refused(f"{answer.status} to a layer of {source} for {repository}")
            place = answer.headers["Location"]
        blob = f"/v2/{source}/blobs/{digest}"
        async with self._ask("GET", blob, _pull(source), patience=COPY) as layer:
            if layer.status != 200:
                raise self._refused(f"{layer.status} for a layer of {source}")
            await self._send(place, _push(repository), digest, layer.content.iter_chunked(2**20))

    @asynccontextmanager
    async def _ask(
        self,
        method: str,
        path: str,
        scope: str,
        data: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        patience: aiohttp.ClientTimeout = TIMEOUT,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = self._url.join(URL(path, encoded=True))
        how = {"data": data, "timeout": patience, "allow_redirects": method in {"GET", "HEAD"}}
        try:
            allowed = self._known(scope, url)
            answer = await self._session.request(method, url, headers={**(headers or {}), **allowed}, **how)
            if answer.status == 401 and url.host == self._url.host:
                challenge = answer.headers.get("WWW-Authenticate", "")
                answer.release()
                allowed = {"Authorization": await self._permission(challenge, scope)}
                answer = await self._session.request(
                    method, url, headers={**(headers or {}), **allowed}, **how
                )
            async with answer:
                yield answer
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            why = str(error) or "no answer within 5 s"
            raise RegistryError(f"the registry {self._host} is unreachable: {why}") from error

    def _known(self, scope: str, url: URL) -> dict[str, str]:
        """Only for the registry itself: an upload's place may be another host's."""
        permission, until = self._allowed.get(scope, ("", 0.0))
        good = permission and monotonic() < until and url.host == self._url.host
        return {"Authorization": permission} if good else {}

    async def _permission(self, challenge: str, scope: str) -> str:
        """The Authorization which a 401 asks for."""
        scheme, _, rest = challenge.partition(" ")
        asked = dict(re.findall(r'\b(\w{1,20})="([^"]*)"', rest))
        if scheme.lower() == "basic" and self._basic:
            permission, seconds = self._basic, float("inf")
        elif scheme.lower() == "bearer" and "realm" in asked:
            permission, seconds = await self._token(asked, scope)
        else:
            repository = scope.split(":")[1]
            raise self._refused(f"401 for {repository}, and there are no credentials for it")
        self._allowed[scope] = permission, monotonic() + seconds
        return permission

    async def _token(self, asked: dict[str, str], scope: str) -> tuple[str, float]:
        """Without credentials too: public images of the large registries want a token for nobody."""
        if not (self._insecure or asked["realm"].startswith("https://")):
            raise self._refused(f"that its tokens are given out in the clear, at {asked['realm']}")
        query = [("service", asked.get("service", "")), *(("scope", one) for one in scope.split())]
        headers = {"Authorization": self._basic} if self._basic else {}
        async with self._session.get(asked["realm"], params=query, headers=headers) as answer:
            if answer.status != 200:
                raise self._refused(f"{answer.status} from {answer.url.host}, which gives out its tokens")
            body = _object(await self._document(answer))
        if body is None:
            raise self._refused(f"no token from {asked['realm']}")
        seconds = float(body.get("expires_in") or TOKEN_LIFE)
        return f"Bearer {body.get('token') or body.get('access_token')}", 0.8 * seconds

    def _refused(self, what: str) -> RegistryError:
        return RegistryError(f"the registry {self._host} answered {what}")


def _object(document: bytes) -> Json | None:
    try:
        body = json.loads(document)
    except (ValueError, RecursionError):  # no JSON, or nested thousands of levels deep
        return None
    return body if isinstance(body, dict) else None


def _pull(repository: str) -> str:
    return f"repository:{repository}:pull"


def _push(repository: str) -> str:
    return f"repository:{repository}:pull,push"
