"""An OCI registry: find, compose, and delete images, with its token service, timeouts, and the texts of its
errors, such as a host name that doesn't resolve. Layers stay in the registry.

Hand-written on aiohttp: the Python clients that exist are synchronous, and push or pull whole images.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from time import monotonic
from typing import Any

import aiohttp
from yarl import URL

from bot.core.metrics import measured
from bot.platform.registry.auth import HUB, Login, RegistryError
from bot.platform.registry.images import (
    DOCKER,
    INDEXES,
    OCI,
    Image,
    ImageRef,
    Json,
    composed,
    digest_of,
    for_linux,
)

# All four types in one header: otherwise, registries convert the manifest and return a digest that can't be
# pulled, or 404 for an image that exists (distribution 2.8).
MANIFESTS = ", ".join((OCI, DOCKER, *INDEXES))
REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=5)  # seconds
LAYER_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=60)  # a layer can be gigabytes
TOKEN_LIFE = 60  # seconds, if a token has no expires_in: the minimum in the specification
BASIC_LIFE = 60  # seconds until credentials are read again, which people and clouds replace
TAGS_PAGE = 1000  # tags; registries can send fewer
MAX_TAGS, MAX_PAGES = 100_000, 1000  # of a repository
MAX_REASON = 300  # characters of an error, which can quote an answer
MAX_JSON = 4 * 2**20  # bytes: registries accept no larger manifest
DIGEST = re.compile("sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
HUB_API = "registry-1.docker.io"


class ImageMissingError(RegistryError):
    """The image doesn't exist."""


class UnknownHostError(RegistryError):
    """The registry's host name doesn't resolve. `given`: the image as a user wrote it; "" elsewhere."""

    given = ""


class Registry:
    """A client of one registry. Create it inside a running event loop, and close it.

    Args:
        api: host or host:port.
        insecure: use plain HTTP.
        credentials: returns user and password or token, called each time they are needed, because they
            expire; None for anonymous reads. Raises RegistryError.
    """

    def __init__(
        self,
        api: str,
        *,
        insecure: bool = False,
        credentials: Callable[[], Awaitable[Login | None]] | None = None,
    ) -> None:
        self._host = HUB_API if api == HUB else api
        self._insecure = insecure
        self._url = URL(f"{'http' if insecure else 'https'}://{self._host}")
        self._credentials = credentials
        self._authorizations: dict[str, tuple[str, float]] = {}  # scope -> header, monotonic expiry
        # No cookies: Harbor takes a client that returns its cookie for a browser, and wants a CSRF token.
        self._session = aiohttp.ClientSession(
            timeout=REQUEST_TIMEOUT, trust_env=True, cookie_jar=aiohttp.DummyCookieJar()
        )

    async def close(self) -> None:
        await self._session.close()

    async def digest(self, repository: str, tag: str) -> str | None:
        """Return the digest of the image or index with this tag or digest; None if it doesn't exist.

        Raises RegistryError.
        """
        path = f"/v2/{repository}/manifests/{tag}"
        async with self._request("HEAD", path, _pull(repository), headers={"Accept": MANIFESTS}) as answer:
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise self._error(f"{answer.status} for {repository}:{tag}")
            found = answer.headers.get("Docker-Content-Digest", "")
        if not found:  # optional: some versions of Nexus, Red Hat's registries, and static ones don't send it
            async with self._request("GET", path, _pull(repository), headers={"Accept": MANIFESTS}) as answer:
                document = await self._document(answer)
                found = digest_of(document) if answer.status == 200 and _object(document) else ""
        if not DIGEST.fullmatch(found):
            raise self._error(f"no digest for {repository}:{tag}")
        return found

    async def tags(self, repository: str) -> list[str]:
        """Return all tags; [] if the repository doesn't exist. Raises RegistryError."""
        found: list[str] = []
        page = f"/v2/{repository}/tags/list?n={TAGS_PAGE}"
        for _ in range(MAX_PAGES):
            async with self._request("GET", page, _pull(repository)) as answer:
                if answer.status == 404:
                    return found
                tags = (await self._json(answer, f"the tags of {repository}")).get("tags") or []
                found += [str(tag) for tag in tags]
                page = str(answer.links["next"]["url"]) if "next" in answer.links else ""
            if not page or len(found) > MAX_TAGS:
                break
        if page:
            raise self._error(f"over {MAX_TAGS:,} tags or {MAX_PAGES:,} pages of them for {repository}")
        return found

    async def delete(self, place: ImageRef) -> bool:
        """Delete the image, with all its tags; return False if it doesn't exist. Raises RegistryError."""
        digest = await self.digest(place.repository, place.tag)
        if not digest:
            return False
        status = await self._delete(place.repository, digest)
        if status == 400:  # Google's refuses to delete an image that has tags
            await self._delete(place.repository, place.tag)
            status = await self._delete(place.repository, digest)
        if status == 405:  # Docker Hub, and distribution's default
            raise RegistryError(f"the registry {self._host} doesn't allow deletion (storage.delete.enabled)")
        if status not in {200, 202, 404}:
            raise self._error(f"{status} when deleting {place}")
        return status != 404

    async def _delete(self, repository: str, reference: str) -> int:
        """Return the status. Token services grant what they know of the scope: Quay's asks for `push`."""
        path, scope = f"/v2/{repository}/manifests/{reference}", f"{_push(repository)},delete"
        async with self._request("DELETE", path, scope) as answer:
            return answer.status

    async def compose(self, to: ImageRef, below: ImageRef, above: ImageRef) -> str:
        """Tag as `to` the image `below` with the layers of `above` on top, and return its digest.

        Idempotent. Raises RegistryError; ImageMissingError if `below` or `above` doesn't exist.
        """
        under, over = await self._image(below), await self._image(above)
        with self._as_expected():
            config, manifest = composed(under, over)
        await self._upload(to.repository, digest_of(config), config)
        if not await self._put(to, under.type, manifest):
            # The layers are in other repositories: a project's first image, or new dependencies. Registries
            # have several codes for it.
            for place, image in ((below, under), (above, over)):
                for layer in image.manifest["layers"]:
                    await self._mount(to.repository, layer, place.repository)
            if not await self._put(to, under.type, manifest):
                raise self._error(f"that {to} isn't valid, right after its layers were mounted")
        return digest_of(manifest)

    async def _image(self, place: ImageRef) -> Image:
        manifest = await self._manifest(place, place.tag)
        if manifest.get("mediaType") in INDEXES:
            with self._as_expected():
                chosen = for_linux(manifest)
            if chosen is None:
                raise ImageMissingError(f"{place} in the registry {self._host} has no linux/amd64 image")
            manifest = await self._manifest(place, chosen)
        with self._as_expected():
            digest = str(manifest["config"]["digest"])
        path = f"/v2/{place.repository}/blobs/{digest}"
        async with self._request("GET", path, _pull(place.repository)) as answer:
            return Image(manifest, await self._json(answer, f"the config of {place}", digest))

    async def _manifest(self, place: ImageRef, reference: str) -> Json:
        path = f"/v2/{place.repository}/manifests/{reference}"
        async with self._request(
            "GET", path, _pull(place.repository), headers={"Accept": MANIFESTS}
        ) as answer:
            return {"mediaType": answer.content_type, **await self._json(answer, str(place), reference)}

    async def _json(self, answer: aiohttp.ClientResponse, what: str, reference: str = "") -> Json:
        """Parse the response's JSON; if `reference` is a digest, verify it. Raises RegistryError."""
        if answer.status == 404:
            raise ImageMissingError(f"{what} is not in the registry {self._host}")
        document = await self._document(answer)
        if answer.status == 200 and ":" in reference and digest_of(document) != reference:
            raise self._error(f"content that doesn't match the digest {reference} for {what}")
        body = _object(document) if answer.status == 200 else None
        if body is None:
            raise self._error(f"{answer.status} for {what}")
        return body

    async def _document(self, answer: aiohttp.ClientResponse) -> bytes:
        """Read the decompressed body up to MAX_JSON: a few KiB of gzip can be gigabytes."""
        found = bytearray()
        async for part in answer.content.iter_chunked(2**16):
            found += part
            if len(found) > MAX_JSON:
                raise self._error(f"{answer.status} with over {MAX_JSON // 2**20} MiB of JSON")
        return bytes(found)

    async def _put(self, to: ImageRef, kind: str, manifest: bytes) -> bool:
        """Push the manifest; return False if it isn't valid there, because its layers are missing."""
        path, scope = f"/v2/{to.repository}/manifests/{to.tag}", _push(to.repository)
        async with self._request("PUT", path, scope, manifest, headers={"Content-Type": kind}) as answer:
            if answer.status not in {201, 400, 404}:
                raise self._error(f"{answer.status} to the manifest {to}")
            return answer.status == 201

    async def _upload(self, repository: str, digest: str, data: bytes) -> None:
        path, scope = f"/v2/{repository}/blobs/uploads/", _push(repository)
        async with self._request("POST", path, scope) as answer:
            if answer.status != 202:
                raise self._error(f"{answer.status} to an upload to {repository}")
            place = answer.headers["Location"]
        await self._send(place, scope, digest, data)

    async def _send(
        self, place: str, scope: str, digest: str, data: Any, size: Mapping[str, str] | None = None
    ) -> None:
        """Finish an upload. `size`: the header Content-Length, because not all registries take chunks."""
        # The query of the Location is signed, so it stays as it is.
        place = f"{place}{'&' if '?' in place else '?'}digest={digest}"
        async with self._request("PUT", place, scope, data, headers=size, timeout=LAYER_TIMEOUT) as answer:
            if answer.status != 201:
                raise self._error(f"{answer.status} to an upload")

    async def _mount(self, repository: str, layer: Json, source: str) -> None:
        """Mount a layer into a repository; if the registry doesn't support that, copy it."""
        if source == repository:
            return
        with self._as_expected():
            digest, size = str(layer["digest"]), {"Content-Length": str(int(layer["size"]))}
        path = f"/v2/{repository}/blobs/uploads/?mount={digest}&from={source}"
        scope = f"{_push(repository)} {_pull(source)}"
        async with self._request("POST", path, scope) as answer:
            if answer.status == 201:
                return
            if answer.status != 202:
                raise self._error(f"{answer.status} to a layer of {source} for {repository}")
            place = answer.headers["Location"]
        await self._send(place, scope, digest, partial(self._layer, digest, source), size)

    async def _layer(self, digest: str, source: str) -> AsyncIterator[bytes]:
        blob = f"/v2/{source}/blobs/{digest}"
        async with self._request("GET", blob, _pull(source), timeout=LAYER_TIMEOUT) as layer:
            if layer.status != 200:
                raise self._error(f"{layer.status} for a layer of {source}")
            async for part in layer.content.iter_chunked(2**20):
                yield part

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        scope: str,
        data: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: aiohttp.ClientTimeout = REQUEST_TIMEOUT,  # noqa: ASYNC109 - aiohttp's own
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the answer. `data`: what to send, or a function that yields it, called again after a 401."""
        try:
            with self._as_expected():
                url = self._url.join(URL(path, encoded=True))
                if url.host == self._url.host and not self._insecure:
                    url = url.with_scheme("https")  # behind a TLS proxy, a registry can call itself http://
                again = data if callable(data) else lambda: data
                how: dict[str, Any] = {"timeout": timeout, "allow_redirects": method in {"GET", "HEAD"}}
                authorization = self._cached_authorization(scope, url)
                with measured("registry", operation=f"{method} {url.path}"):
                    answer = await self._session.request(
                        method, url, data=again(), headers={**(headers or {}), **authorization}, **how
                    )
                if answer.status == 401 and url.host == self._url.host:
                    challenges = answer.headers.getall("WWW-Authenticate", [])
                    answer.release()
                    authorization = {"Authorization": await self._authorize(challenges, scope)}
                    answer = await self._session.request(
                        method, url, data=again(), headers={**(headers or {}), **authorization}, **how
                    )
                async with answer:
                    yield answer
        except aiohttp.ClientConnectorDNSError as error:
            raise UnknownHostError(
                f"the registry {self._host} can't be reached: its host name doesn't resolve"
            ) from error
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            if isinstance(error.__cause__, RegistryError):  # of the function that yields the data
                raise error.__cause__ from None
            why = str(error)[:MAX_REASON] or "no answer within 5 s"
            raise RegistryError(f"the registry {self._host} can't be reached: {why}") from error

    def _cached_authorization(self, scope: str, url: URL) -> dict[str, str]:
        """Return the header for the registry itself: an upload's Location can be on another host."""
        header, until = self._authorizations.get(scope, ("", 0.0))
        valid = header and monotonic() < until and url.host == self._url.host
        return {"Authorization": header} if valid else {}

    async def _authorize(self, challenges: Sequence[str], scope: str) -> str:
        """Return the Authorization header for the first challenge of a 401 that it can answer.

        Proxies add others, such as Negotiate.
        """
        login = await self._credentials() if self._credentials else None
        basic = aiohttp.encode_basic_auth(*login) if login else ""
        for challenge in challenges:
            scheme, _, rest = challenge.partition(" ")
            parameters = dict(re.findall(r'\b(\w{1,20})="([^"]*)"', rest))
            if scheme.lower() == "basic" and basic:
                header, seconds = basic, float(BASIC_LIFE)
            elif scheme.lower() == "bearer" and "realm" in parameters:
                header, seconds = await self._token(parameters, scope, basic)
            else:
                continue
            self._authorizations[scope] = header, monotonic() + seconds
            return header
        raise self._error(f"401 for {scope.split(':')[1]}: credentials are missing or wrong")

    async def _token(self, parameters: dict[str, str], scope: str, basic: str) -> tuple[str, float]:
        """Return a bearer token and its seconds; public images of large registries need an anonymous one."""
        if not (self._insecure or parameters["realm"].startswith("https://")):
            raise self._error(f"with a token URL without TLS: {parameters['realm']}")
        query = [("service", parameters.get("service", "")), *(("scope", one) for one in scope.split())]
        headers = {"Authorization": basic} if basic else {}
        async with self._session.get(parameters["realm"], params=query, headers=headers) as answer:
            if answer.status != 200:
                raise self._error(f"{answer.status} from its token service {answer.url.host}")
            body = _object(await self._document(answer))
        token = body and (body.get("token") or body.get("access_token"))
        if not body or not token:
            raise self._error(f"without a token from {parameters['realm']}")
        return f"Bearer {token}", 0.8 * float(body.get("expires_in") or TOKEN_LIFE)

    @contextmanager
    def _as_expected(self) -> Iterator[None]:
        """Raise RegistryError where the body finds an answer that isn't in the registry's specification.

        URLs and tokens are parts of answers, too.
        """
        try:
            yield
        except aiohttp.ClientError:  # one is a ValueError, too
            raise
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise self._error(f"something unexpected ({type(error).__name__}: {error})") from error

    def _error(self, what: str) -> RegistryError:
        return RegistryError(f"the registry {self._host} answered {what[:MAX_REASON]}")


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
