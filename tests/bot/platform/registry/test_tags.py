"""Tags are listed, page by page, and deleted with their image: the same tests on a real registry."""

import pytest
from aiohttp import web

from bot.platform.registry import client as module
from bot.platform.registry.auth import RegistryError
from bot.platform.registry.client import Registry
from bot.platform.registry.images import CONFIG, DOCKER, LAYER, ImageRef
from tests.bot.platform.registry.registries import Pusher, a_registry

TYPES = (DOCKER, CONFIG[DOCKER], LAYER[DOCKER])
KINDS = ["local", pytest.param("distribution", marks=pytest.mark.slow)]


@pytest.fixture(params=KINDS)
async def address(request, tmp_path):
    async with a_registry(request.param, tmp_path / "registry") as address:
        for tag in "abcde":
            await Pusher(address).image("lab/lr", tag, TYPES, [b"old" if tag in "ab" else tag.encode()], {})
        yield address


@pytest.fixture
async def registry(address):
    registry = Registry(address, insecure=True)
    yield registry
    await registry.close()


@pytest.mark.parametrize("page", [2, 5, 100])
async def test_tags_are_listed_in_pages(registry, monkeypatch, page):
    monkeypatch.setattr(module, "TAGS_PAGE", page)
    assert sorted(await registry.tags("lab/lr")) == list("abcde")


async def test_delete_removes_all_tags_of_the_image_and_no_other(registry):
    assert await registry.tags("lab/other") == []
    assert await registry.delete(ImageRef("lab/lr", "a"))
    assert not await registry.delete(ImageRef("lab/lr", "b")), "it was the same image"
    assert sorted(await registry.tags("lab/lr")) == list("cde")
    assert await registry.digest("lab/lr", "c")


async def test_delete_in_a_registry_without_deletion_names_the_setting(toy):
    async def strict(request):
        headers = {"Docker-Content-Digest": "sha256:" + "a" * 64}
        return web.Response(headers=headers, status=200 if request.method == "HEAD" else 405)

    registry = Registry(await toy(strict), insecure=True)
    with pytest.raises(RegistryError, match=r"doesn't allow deletion \(storage\.delete\.enabled\)"):
        await registry.delete(ImageRef("lab/lr", "a"))
    await registry.close()
