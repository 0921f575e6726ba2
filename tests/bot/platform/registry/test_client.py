"""One question to registries with different manners."""

import gzip
from base64 import b64encode

import pytest
from aiohttp import web

from bot.platform.registry import client
from bot.platform.registry.auth import RegistryError
from bot.platform.registry.client import MANIFESTS, Registry
from bot.platform.registry.images import ImageRef, digest_of
from tests.bot.platform.registry.registries import knows

DIGEST = "sha256:" + "ab" * 32
BASIC = "Basic " + b64encode(b"bot:secret").decode()
HOST_401 = "the registry HOST answered 401 for team/lr"
OCI = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture
def asked(toy):
    """`await asked(handler, credentials)`: the client's result with this registry."""

    async def command(handler, credentials=None):
        host = await toy(handler)
        registry = Registry(host, insecure=True, credentials=credentials and knows(*credentials))
        try:
            return await registry.digest("team/lr", "v1")
        except RegistryError as error:
            return str(error).replace(host, "HOST")
        finally:
            await registry.close()

    return command


def found():
    return web.Response(headers={"Docker-Content-Digest": DIGEST})


def challenge(how):
    return web.Response(status=401, headers={"WWW-Authenticate": how})


async def test_digest_is_requested_with_all_four_media_types_and_none_for_404_only(asked):
    async def distribution(request):
        assert (request.method, request.path) == ("HEAD", "/v2/team/lr/manifests/v1")
        assert request.headers.getall("Accept") == [MANIFESTS]
        assert len(MANIFESTS.split(", ")) == 4
        return found() if OCI in request.headers["Accept"] else web.Response(status=404)

    assert await asked(distribution) == DIGEST

    async def empty(_):
        return web.Response(status=404)

    assert await asked(empty) is None


@pytest.mark.parametrize("status", [400, 403, 429, 500, 503])
async def test_digest_other_status_is_an_error_with_host_and_status(asked, status):
    async def broken(_):
        return web.Response(status=status)

    assert await asked(broken) == f"the registry HOST answered {status} for team/lr:v1"


async def test_digest_that_is_missing_or_of_another_form_is_an_error(asked):
    async def silent(_):
        return web.Response()

    assert await asked(silent) == "the registry HOST answered no digest for team/lr:v1"

    async def nexus(_):
        return web.json_response({"schemaVersion": 2}, content_type=OCI)

    assert await asked(nexus) == digest_of(b'{"schemaVersion": 2}')

    async def odd(_):
        return web.Response(headers={"Docker-Content-Digest": "latest evil"})

    assert await asked(odd) == "the registry HOST answered no digest for team/lr:v1"


async def test_basic_credentials_are_sent_when_requested(asked):
    async def htpasswd(request):
        return found() if request.headers.get("Authorization") == BASIC else challenge('Basic realm="r"')

    assert await asked(htpasswd, ("bot", "secret")) == DIGEST
    assert await asked(htpasswd) == f"{HOST_401}: credentials are missing or wrong"
    assert await asked(htpasswd, ("bot", "wrong")) == f"{HOST_401}:v1"


async def test_challenge_of_a_proxy_is_passed_over(asked):
    async def kerberos(request):
        if request.headers.get("Authorization") == BASIC:
            return found()
        answer = challenge("Negotiate")
        answer.headers.add("WWW-Authenticate", 'BASIC realm="Sonatype Nexus Repository Manager"')
        return answer

    assert await asked(kerberos, ("bot", "secret")) == DIGEST


async def test_cookies_of_a_registry_are_not_sent_back(toy):
    async def harbor(request):
        """Take a client with a session for a browser, as Harbor does."""
        if request.cookies and request.method != "HEAD":
            return web.Response(status=403, text="CSRF token not found in request")
        answer = found() if request.method == "HEAD" else web.Response(status=202)
        answer.set_cookie("sid", "1")
        return answer

    host = (await toy(harbor)).replace("127.0.0.1", "localhost")  # aiohttp takes no cookies from addresses
    registry = Registry(host, insecure=True)
    assert await registry.delete(ImageRef("team/lr", "v1"))
    await registry.close()


@pytest.mark.parametrize("field", ["token", "access_token"])
@pytest.mark.parametrize("credentials", [None, ("bot", "secret")])
async def test_token_is_fetched_from_the_registrys_realm(asked, field, credentials):
    async def bearer(request):
        if request.path == "/token":
            assert request.headers.get("Authorization") == (BASIC if credentials else None)
            assert dict(request.query) == {"service": "hub", "scope": "repository:team/lr:pull"}
            return web.json_response({field: "t0k3n"})
        if request.headers.get("Authorization") == "Bearer t0k3n":
            return found()
        return challenge(f'Bearer realm="http://{request.host}/token",service="hub",scope="x"')

    assert await asked(bearer, credentials) == DIGEST


async def test_token_that_is_rejected_or_has_no_possible_service_is_an_error(asked):
    async def bearer(request):
        if request.path == "/token":
            return web.Response(status=403)
        return challenge(f'Bearer realm="http://{request.host}/token",service="hub"')

    assert await asked(bearer) == "the registry HOST answered 403 from its token service 127.0.0.1"

    async def bearer(request):
        if request.path == "/token":
            return web.json_response({"details": "incorrect username or password"})
        return challenge(f'Bearer realm="http://{request.host}/token",service="hub"')

    assert await asked(bearer) == "the registry HOST answered without a token from http://HOST/token"

    async def bearer(_):
        return challenge(f'Bearer realm="{LONG_LABEL}"')

    assert "answered something unexpected" in await asked(bearer)


async def test_unreachable_registry_is_an_error(free_port):
    registry = Registry(f"127.0.0.1:{free_port}", insecure=True)
    with pytest.raises(
        RegistryError, match=f"the registry 127.0.0.1:{free_port} can't be reached: Cannot connect"
    ):
        await registry.digest("team/lr", "v1")
    await registry.close()


async def test_registry_without_tls_is_not_called_over_http(toy):
    async def plain(_):
        return found()

    registry = Registry(await toy(plain))
    with pytest.raises(RegistryError, match="can't be reached"):
        await registry.digest("team/lr", "v1")
    await registry.close()


@pytest.mark.parametrize(
    "document", [b'{"a":' + b" " * 5_000_000 + b"1}", b"[" * 100_000, b"null", b"<html>"]
)
async def test_invalid_document_is_rejected(toy, document):
    async def packed(_):
        page = gzip.compress(document)
        return web.Response(body=page, headers={"Content-Encoding": "gzip", "Content-Type": OCI})

    registry = Registry(await toy(packed), insecure=True)
    with pytest.raises(RegistryError, match=r"answered 200 (with over 4 MiB of JSON|for the tags of a)"):
        await registry.tags("a")
    await registry.close()


async def test_endless_tags_are_an_error(toy, monkeypatch):
    monkeypatch.setattr(client, "MAX_PAGES", 20)

    async def endless(_):
        return web.json_response({"tags": []}, headers={"Link": '</v2/a/tags/list?last=x>; rel="next"'})

    registry = Registry(await toy(endless), insecure=True)
    with pytest.raises(RegistryError, match="answered over 100,000 tags or 20 pages of them for a"):
        await registry.tags("a")
    await registry.close()


MANIFEST = {"mediaType": OCI, "config": {"digest": DIGEST}, "layers": []}
INDEX = {"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": ["x"]}


@pytest.mark.parametrize(
    "document",
    [{"mediaType": OCI}, MANIFEST | {"config": [1]}, MANIFEST | {"layers": 3}, INDEX, {"manifests": {}}],
)
async def test_document_of_another_shape_is_an_error(toy, document):
    async def answer(request):
        return web.json_response(document, content_type=str(document.get("mediaType", OCI)))

    registry, place = Registry(await toy(answer), insecure=True), ImageRef("a", "v1")
    with pytest.raises(RegistryError, match=r"answered (something unexpected|content that doesn't match)"):
        await registry.compose(place, place, place)
    await registry.close()


async def test_upload_without_a_location_is_an_error(toy):
    async def accepted(_):
        return web.Response(status=202)

    registry = Registry(await toy(accepted), insecure=True)
    with pytest.raises(RegistryError, match="answered something unexpected"):
        await registry._upload("a", DIGEST, b"x")
    await registry.close()


async def test_upload_to_the_http_address_of_a_registry_with_tls_stays_encrypted(monkeypatch):
    """A registry behind a TLS proxy takes the scheme from its own request."""
    registry, asked = Registry("registry.example:5000"), []

    async def unreachable(method, url, **_):
        asked.append(str(url))
        raise OSError("unreachable")

    monkeypatch.setattr(registry._session, "request", unreachable)
    for place in ("http://registry.example:5000/v2/a?_state=x%2F", "http://storage.example/a"):
        with pytest.raises(RegistryError, match="unreachable"):
            await registry._send(place, "repository:a:push", DIGEST, b"x")
    assert asked == [
        f"https://registry.example:5000/v2/a?_state=x%2F&digest={DIGEST}",
        f"http://storage.example/a?digest={DIGEST}",
    ]
    await registry.close()


LONG_LABEL = f"http://{'a' * 300}"  # DNS has at most 63 characters


@pytest.mark.parametrize(
    "answer",
    [{"token": "a\r\nX-Evil: b"}, {"token": "t", "expires_in": 10**400}, {"token": "t", "expires_in": "y"}],
)
async def test_token_that_cant_be_used_is_an_error(asked, answer):
    async def bearer(request):
        if request.path == "/token":
            return web.json_response(answer)
        return challenge(f'Bearer realm="http://{request.host}/token"')

    assert "answered something unexpected" in await asked(bearer)


@pytest.mark.parametrize("place", ["http://[", "http://127.0.0.1:99999/", LONG_LABEL])
async def test_upload_to_an_invalid_location_is_an_error(toy, place):
    async def accepted(_):
        return web.Response(status=202, headers={"Location": place})

    registry = Registry(await toy(accepted), insecure=True)
    with pytest.raises(RegistryError, match="answered something unexpected"):
        await registry._upload("a", DIGEST, b"x")
    await registry.close()


async def test_error_quotes_only_the_begin_of_an_answer(asked):
    async def bearer(request):
        if request.path == "/token":
            return web.json_response({"token": "t", "expires_in": "y" * 1_000_000})
        return challenge(f'Bearer realm="http://{request.host}/token"')

    assert len(await asked(bearer)) < 400
