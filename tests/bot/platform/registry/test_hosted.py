"""A sweep's images in each kind of hosted registry, with a path: Debian's docker-registry behind its door."""

import json

import pytest

from bot.platform.clients import own_registry
from bot.platform.registry.auth import RegistryError
from bot.platform.registry.images import CONFIG, DOCKER, LAYER, ImageRef
from bot.sweep.builds.jobs import Source, build_plan
from tests.bot.factories import REPOSITORY, SETTINGS
from tests.bot.platform.registry.hosted import HOSTED, HOUR, Front
from tests.bot.platform.registry.registries import Pusher, a_registry

DOCKER_TYPES = (DOCKER, CONFIG[DOCKER], LAYER[DOCKER])
FILES = {"requirements.txt": "numpy==2.4.6\n"}
SOURCE = Source(repository=REPOSITORY, ref="refs/heads/main", commit="c" * 40, subject="x", files=FILES)


@pytest.fixture(params=["local", pytest.param("distribution", marks=pytest.mark.slow)])
async def address(request, tmp_path):
    async with a_registry(request.param, tmp_path / "registry") as address:
        yield address


def installed(host, **more):
    plain = {"image_registry": f"{host}/acme", "image_registry_plain_http": True}
    return SETTINGS.model_copy(update={**plain, **more})


def secret(file, host, user, password):
    """Write a Secret's file as kubelets do: another file takes its place."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"auths": {f"{host}/acme": {"username": user, "password": password}}}))
    new.replace(file)


async def a_sweeps_images(plan, address, registry):
    """Push what Kaniko builds, compose it, and return the digest of the image that trials run."""
    deps, code = (next(b for b in plan.builds if b.role.value == role) for role in ("dependencies", "code"))
    push = Pusher(address)
    await push.image(deps.repository, deps.tag, DOCKER_TYPES, [b"venv"], {})
    await push.image(code.repository, code.tag, DOCKER_TYPES, [b"code"], {})
    parts = [ImageRef(each.repository, each.tag) for each in (deps, code)]
    return await registry.compose(ImageRef(plan.repository, plan.tag), *parts)


@pytest.mark.parametrize("kind", HOSTED)
async def test_images_of_a_sweep_are_composed_listed_and_deleted(kind, address, toy, tmp_path):
    front = Front(address, HOSTED[kind])
    host = await toy(front.answer)
    file = tmp_path / "config.json"
    secret(file, host, front.manners.user, front.password)
    settings = installed(host, registry_auth_file=file)
    plan = build_plan(SOURCE, settings)
    front.repositories = {"acme/sweepbot-digits", "acme/sweepbot-dependencies"}
    assert {plan.repository} | {build.repository for build in plan.builds} == front.repositories
    registry = own_registry(settings)
    assert await registry.digest(plan.repository, plan.tag) is None
    digest = await a_sweeps_images(plan, address, registry)
    assert await registry.digest(plan.repository, plan.tag) == digest
    assert plan.tag in await registry.tags(plan.repository)

    # The day after: the login of the Secret has been replaced, and the old one has ended.
    front.clock += 11 * HOUR
    front.renew("password-2")
    secret(file, host, front.manners.user, front.password)
    front.clock += 2 * HOUR
    assert await registry.digest(plan.repository, plan.tag) == digest

    if front.manners.deletes:
        assert await registry.delete(ImageRef(plan.repository, plan.tag))
        assert await registry.digest(plan.repository, plan.tag) is None
    else:
        with pytest.raises(RegistryError, match="doesn't allow deletion"):
            await registry.delete(ImageRef(plan.repository, plan.tag))
    await registry.close()


async def test_a_login_that_ended_is_an_error_that_a_new_one_ends(address, toy, tmp_path):
    front = Front(address, HOSTED["ECR"], repositories={"acme/sweepbot-digits"})
    host = await toy(front.answer)
    file = tmp_path / "config.json"
    secret(file, host, "AWS", "password-1")
    settings = installed(host, registry_auth_file=file)
    registry = own_registry(settings)
    assert await registry.digest("acme/sweepbot-digits", "v1") is None
    front.clock = 12 * HOUR
    with pytest.raises(RegistryError, match="answered 401 for acme/sweepbot-digits"):
        await registry.digest("acme/sweepbot-digits", "v1")
    file.write_text("{")
    with pytest.raises(RegistryError, match=r"REGISTRY_AUTH_FILE: .*config.json must be"):
        await registry.digest("acme/sweepbot-digits", "v1")
    front.renew("password-2")
    secret(file, host, "AWS", "password-2")
    assert await registry.digest("acme/sweepbot-digits", "v1") is None
    await registry.close()
