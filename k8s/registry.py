"""Is this image there, and which one is it: one question to an OCI registry."""

import re

import aiohttp

# All four in one header. Without the right type registries convert, and answer the digest of something nobody
# can pull, or 404 for an image that is there (distribution 2.8).
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    )
)
TIMEOUT = aiohttp.ClientTimeout(total=5)  # seconds


class RegistryError(Exception):
    """The registry did not answer, or not with yes or no; the sentence names it."""


class Registry:
    """A registry by its host and port. Made inside a running event loop; close it.

    `insecure`: plain HTTP. `credentials`: user and password (or token); private images need them.
    """

    def __init__(
        self, api: str, *, insecure: bool = False, credentials: tuple[str, str] | None = None
    ) -> None:
        self._host = api
        self._url = f"{'http' if insecure else 'https'}://{api}"
        self._basic = aiohttp.encode_basic_auth(*credentials) if credentials else ""
        self._session = aiohttp.ClientSession(timeout=TIMEOUT, trust_env=True)

    async def close(self) -> None:
        await self._session.close()

    async def digest(self, repository: str, tag: str) -> str | None:
        """`sha256:...` of the image or index with this tag; None when there is none. Raises RegistryError."""
        url = f"{self._url}/v2/{repository}/manifests/{tag}"
        try:
            answer = await self._head(url, {})
            if answer.status == 401:
                allowed = await self._permission(answer.headers.get("WWW-Authenticate", ""), repository)
                answer = await self._head(url, {"Authorization": allowed})
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            why = str(error) or "no answer within 5 s"
            raise RegistryError(f"the registry {self._host} can't be asked: {why}") from error
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise self._refused(f"{answer.status} for {repository}:{tag}")
        if "Docker-Content-Digest" not in answer.headers:
            raise self._refused(f"no digest for {repository}:{tag}")
        return answer.headers["Docker-Content-Digest"]

    async def _head(self, url: str, headers: dict[str, str]) -> aiohttp.ClientResponse:
        headers = {"Accept": MANIFESTS, **headers}
        async with self._session.head(url, headers=headers, allow_redirects=True) as answer:
            return answer

    async def _permission(self, challenge: str, repository: str) -> str:
        """The Authorization which a 401 asks for."""
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic" and self._basic:
            return self._basic
        asked = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        if scheme.lower() == "bearer" and "realm" in asked:
            return f"Bearer {await self._token(asked, repository)}"
        raise self._refused(f"401 for {repository}, and there are no credentials for it")

    async def _token(self, asked: dict[str, str], repository: str) -> str:
        """Without credentials too: public images of the large registries want a token for nobody."""
        query = {"service": asked.get("service", ""), "scope": f"repository:{repository}:pull"}
        headers = {"Authorization": self._basic} if self._basic else {}
        async with self._session.get(asked["realm"], params=query, headers=headers) as answer:
            if answer.status != 200:
                raise self._refused(f"{answer.status} from {answer.url.host}, which gives out its tokens")
            body = await answer.json(content_type=None)
            return str(body.get("token") or body.get("access_token"))

    def _refused(self, what: str) -> RegistryError:
        return RegistryError(f"the registry {self._host} answered {what}")
