"""Two images become one in a registry, without a layer moving: the same tests on a real one."""

import json
from base64 import b64encode

import pytest
from aiohttp import web

from bot.platform.registry.auth import RegistryError, login
from bot.platform.registry.client import ImageMissingError, Registry
from bot.platform.registry.images import CONFIG, DOCKER, LAYER, OCI, ImageName, ImageRef
from tests.bot.platform.registry.registries import Pusher, a_registry, digest_of, knows
from tests.cases import cases

TYPES = {kind: (kind, CONFIG[kind], LAYER[kind]) for kind in (DOCKER, OCI)}
BELOW = {"config": {"Env": ["PATH=/opt/venv/bin"], "WorkingDir": "/app"}, "history": [{"created_by": "RUN"}]}
ABOVE = {"config": {"Cmd": ["nothing"]}, "history": [{"created_by": "COPY"}]}
TO, DEPS, CODE = ImageRef("lab/lr", "final"), ImageRef("lab/lr", "deps"), ImageRef("lab/lr", "code")
KINDS = ["local", pytest.param("distribution", marks=pytest.mark.slow)]


@pytest.fixture(params=KINDS)
async def address(request, tmp_path):
    async with a_registry(request.param, tmp_path / "registry") as address:
        yield address


@pytest.fixture
async def registry(address):
    registry = Registry(address, insecure=True)
    yield registry
    await registry.close()


async def read(address, place, what="manifests", reference=""):
    status, _, body = await Pusher(address).call(
        "GET", f"{place.repository}/{what}/{reference or place.tag}", Accept=f"{OCI}, {DOCKER}"
    )
    assert status == 200, body
    return json.loads(body)


@pytest.mark.parametrize("below", [DOCKER, OCI])
@pytest.mark.parametrize("above", [DOCKER, OCI])
async def test_compose_puts_code_on_its_dependencies(address, registry, below, above):
    push = Pusher(address)
    await push.image("lab/lr", "deps", TYPES[below], [b"base", b"venv"], BELOW)
    await push.image("lab/lr", "code", TYPES[above], [b"code"], ABOVE)
    digest = await registry.compose(TO, DEPS, CODE)
    assert await registry.digest("lab/lr", "final") == digest
    manifest = await read(address, TO)
    assert [layer["digest"] for layer in manifest["layers"]] == [
        digest_of(x) for x in (b"base", b"venv", b"code")
    ]
    assert {layer["mediaType"] for layer in manifest["layers"]} == {LAYER[below]}
    config = await read(address, TO, "blobs", manifest["config"]["digest"])
    assert config["config"] == BELOW["config"], "the image runs with the settings of its dependencies"
    assert config["rootfs"]["diff_ids"] == [digest_of(x) for x in (b"-base", b"-venv", b"-code")]
    assert [h["created_by"] for h in config["history"]] == ["RUN", "COPY"]


async def test_compose_is_deterministic_mounts_layers_and_reads_images_by_digest(address, registry):
    push = Pusher(address)
    await push.image("lab/lr", "deps", TYPES[OCI], [b"base"], BELOW)
    await push.image("lab/lr", "code", TYPES[DOCKER], [b"code"], {})
    assert await registry.compose(TO, DEPS, CODE) == await registry.compose(TO, DEPS, CODE)
    await push.image("lab/shared", "deps", TYPES[DOCKER], [b"base", b"venv"], BELOW)
    await push.image("lab/lr", "code", TYPES[DOCKER], [b"code"], ABOVE)
    digest = await registry.compose(TO, ImageRef("lab/shared", "deps"), CODE)
    assert await registry.digest("lab/lr", "final") == digest
    status, _, body = await push.call("GET", f"lab/lr/blobs/{digest_of(b'venv')}")
    assert (status, body) == (200, b"venv")
    deps, _ = await push.image("lab/lr", "deps", TYPES[DOCKER], [b"base"], BELOW)
    code, _ = await push.image("lab/lr", "code", TYPES[DOCKER], [b"code"], {})
    for tag in ("deps", "code"):
        await push.image("lab/lr", tag, TYPES[DOCKER], [b"planted"], {})
    await registry.compose(TO, ImageRef("lab/lr", deps), ImageRef("lab/lr", code))
    layers = (await read(address, TO))["layers"]
    assert [layer["digest"] for layer in layers] == [digest_of(b"base"), digest_of(b"code")]


async def test_compose_rejects_content_with_another_digest(tmp_path):
    async with a_registry("local", tmp_path / "r") as address:
        push, registry = Pusher(address), Registry(address, insecure=True)
        deps, _ = await push.image("lab/lr", "deps", TYPES[DOCKER], [b"base"], BELOW)
        await push.image("lab/lr", "code", TYPES[DOCKER], [b"code"], {})
        (stored,) = [f for f in (tmp_path / "r").rglob(deps.removeprefix("sha256:")) if f.is_file()]
        stored.write_bytes(stored.read_bytes() + b" ")
        with pytest.raises(RegistryError, match=f"doesn't match the digest {deps}"):
            await registry.compose(TO, ImageRef("lab/lr", deps), CODE)
        await registry.close()


@pytest.mark.parametrize("absent", ["deps", "code"])
async def test_compose_names_a_missing_image(address, registry, absent):
    for tag in {"deps", "code"} - {absent}:
        await Pusher(address).image("lab/lr", tag, TYPES[DOCKER], [b"x"], {})
    with pytest.raises(ImageMissingError, match=f"lab/lr:{absent} is not in the registry {address}"):
        await registry.compose(TO, DEPS, CODE)


@pytest.mark.slow
async def test_compose_chooses_the_platform_from_an_index(tmp_path):
    async with a_registry("distribution", tmp_path / "r") as address:
        push, registry = Pusher(address), Registry(address, insecure=True)
        entries = []
        for architecture in ("arm64", "amd64"):
            digest, size = await push.image(
                "lab/lr", architecture, TYPES[OCI], [architecture.encode()], BELOW
            )
            platform = {"os": "linux", "architecture": architecture}
            entries.append({"mediaType": OCI, "digest": digest, "size": size, "platform": platform})
        index = {"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries}
        await push.manifest("lab/lr", "deps", index)
        await push.image("lab/lr", "code", TYPES[DOCKER], [b"code"], {})
        await registry.compose(TO, DEPS, CODE)
        layers = (await read(address, TO))["layers"]
        assert [layer["digest"] for layer in layers] == [digest_of(b"amd64"), digest_of(b"code")]
        await registry.close()


@pytest.mark.slow
async def test_compose_authenticates_to_a_real_registry(tmp_path):
    async with a_registry("distribution", tmp_path / "r", password=True) as address:
        push = Pusher(address, ("bot", "secret"))
        await push.image("lab/lr", "deps", TYPES[DOCKER], [b"base"], {})
        await push.image("lab/lr", "code", TYPES[DOCKER], [b"code"], {})
        registry = Registry(address, insecure=True, credentials=knows("bot", "secret"))
        assert await registry.compose(TO, DEPS, CODE) == await registry.digest("lab/lr", "final")
        await registry.close()
        stranger = Registry(address, insecure=True, credentials=knows("bot", "wrong"))
        with pytest.raises(RegistryError, match="answered 401"):
            await stranger.compose(TO, DEPS, CODE)
        await stranger.close()


async def test_compose_requests_one_token_with_the_required_scopes(toy, address):
    """A registry with tokens in front of the real one."""
    push, scopes = Pusher(address), []
    await push.image("lab/shared", "deps", TYPES[DOCKER], [b"base"], {})
    await push.image("lab/lr", "code", TYPES[DOCKER], [b"code"], {})

    async def guarded(request):
        if request.path == "/token":
            assert request.headers["Authorization"] == "Basic " + b64encode(b"bot:secret").decode()
            scopes.append(request.query.getall("scope"))
            return web.json_response({"token": "+".join(scopes[-1]), "expires_in": 300})
        if "Authorization" not in request.headers:
            how = f'Bearer realm="http://{request.host}/token",service="hub",scope="x"'
            return web.Response(status=401, headers={"WWW-Authenticate": how})
        token, body = request.headers["Authorization"].removeprefix("Bearer "), await request.read()
        assert "push" in token or request.method in {"GET", "HEAD"}
        passed = {k: v for k, v in request.headers.items() if k in {"Accept", "Content-Type"}}
        where = str(request.rel_url).removeprefix("/v2/")
        status, headers, answer = await push.call(request.method, where, body or None, **passed)
        back = (
            {"Location": headers["Location"].replace(address, request.host)} if "Location" in headers else {}
        )
        kind = {"Content-Type": headers.get("Content-Type", "text/plain")}
        return web.Response(status=status, body=answer, headers=kind | back)

    registry = Registry(await toy(guarded), insecure=True, credentials=knows("bot", "secret"))
    await registry.compose(TO, ImageRef("lab/shared", "deps"), CODE)
    await registry.close()
    assert sorted(scopes) == [
        ["repository:lab/lr:pull"],
        ["repository:lab/lr:pull,push"],
        ["repository:lab/lr:pull,push", "repository:lab/shared:pull"],
        ["repository:lab/shared:pull"],
    ]


async def test_compose_requests_no_token_over_http():
    registry = Registry("registry.example", credentials=knows("bot", "secret"))
    with pytest.raises(RegistryError, match=r"a token URL without TLS: http://evil"):
        await registry._token({"realm": "http://evil"}, "repository:x:pull", "Basic eA==")
    await registry.close()


async def test_compose_copies_layers_if_mounting_fails_and_sends_one_again_whose_login_expired(toy, address):
    push = Pusher(address)
    await push.image("lab/shared", "deps", TYPES[DOCKER], [b"base"], {})
    await push.image("lab/lr", "code", TYPES[DOCKER], [b"code"], {})

    challenge = {"WWW-Authenticate": 'Basic realm="r"'}
    expired = [web.Response(status=401, headers=challenge)]

    async def unwilling(request):
        if request.method == "PUT" and expired and not (await request.read()).startswith(b"{"):  # a layer
            return expired.pop()
        passed = {k: v for k, v in request.headers.items() if k in {"Accept", "Content-Type"}}
        where = str(request.rel_url).removeprefix("/v2/").partition("?mount=")[0]
        status, headers, body = await push.call(request.method, where, await request.read() or None, **passed)
        back = (
            {"Location": headers["Location"].replace(address, request.host)} if "Location" in headers else {}
        )
        kind = {"Content-Type": headers.get("Content-Type", "text/plain")}
        return web.Response(status=status, body=body, headers=kind | back)

    async def login():
        return "u", "p"

    registry = Registry(await toy(unwilling), insecure=True, credentials=login)
    await registry.compose(TO, ImageRef("lab/shared", "deps"), CODE)
    await registry.close()
    assert (len((await read(address, TO))["layers"]), expired) == (2, [])


async def test_compose_names_why_a_layer_that_is_copied_cannot_be_read(toy):
    async def without_layers(request):
        await request.read()
        return web.Response(status=404 if request.method == "GET" else 202, headers={"Location": "/v2/up"})

    registry = Registry(await toy(without_layers), insecure=True)
    with pytest.raises(RegistryError, match=r"answered 404 for a layer of lab/shared$"):
        await registry._mount("lab/lr", {"digest": "sha256:1", "size": 4}, "lab/shared")
    await registry.close()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("python:3.11-slim", ("docker.io", "library/python", "3.11-slim", "")),
        ("pytorch/pytorch", ("docker.io", "pytorch/pytorch", "latest", "")),
        ("registry:5000/lab/lr:v1", ("registry:5000", "lab/lr", "v1", "")),
        (f"ghcr.io/a/b@sha256:{'0' * 64}", ("ghcr.io", "a/b", "", f"sha256:{'0' * 64}")),
        (f"localhost/a:t@sha256:{'0' * 64}", ("localhost", "a", "t", f"sha256:{'0' * 64}")),
    ],
)
def test_image_reference_is_parsed(text, name):
    assert ImageName.parse(text) == ImageName(*name)
    assert ImageName.parse(text).at("sha256:1") == f"{name[0]}/{name[1]}@sha256:1"


NO_NAMES = ["", "https://x/y", "a b", "x@sha256:1", "Upper/case", "-x", "$(id)", "a" * 501]


@cases("text", [*NO_NAMES, "r:5000/lab/../other", "r/a/./b", "r/.."])
def test_image_reference_that_is_invalid_is_an_error(text):
    with pytest.raises(ValueError, match="isn't an image name"):
        ImageName.parse(text)


AUTH = b64encode(b"bot:se:cret").decode()


@cases(
    ("auths", "registry", "who"),
    [
        ({"reg:5000": {"auth": AUTH}}, "reg:5000", ("bot", "se:cret")),
        ({"https://reg:5000/v2/": {"auth": AUTH}}, "reg:5000", ("bot", "se:cret")),
        ({"https://index.docker.io/v1/": {"auth": AUTH}}, "docker.io", ("bot", "se:cret")),
        ({"reg": {"username": "u", "password": "p"}}, "reg", ("u", "p")),
        ({"reg": {"auth": AUTH}}, "other", None),
        ({"reg": {"auth": AUTH}}, "reg/acme", ("bot", "se:cret")),
        ({"reg/acme": {"username": "u", "password": "p"}, "reg": {"auth": AUTH}}, "reg/acme/lr", ("u", "p")),
        ({"reg/acme": {"username": "u", "password": "p"}}, "reg/acmes", None),
        ({"https://index.docker.io/v1/": {"auth": AUTH}}, "docker.io/acme", ("bot", "se:cret")),
        ({"reg": {"auth": b64encode(b"0-0:").decode(), "identitytoken": "t"}}, "reg", ("0-0", "t")),
    ],
)
def test_credentials_are_found_by_registry(auths, registry, who):
    assert login(json.dumps({"auths": auths}), registry) == who


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"auths": {"reg": {"auth": "?"}}}', '{"auths": []}'])
def test_docker_config_in_another_format_is_an_error(text):
    with pytest.raises(ValueError, match="as docker login writes it"):
        login(text, "reg")
