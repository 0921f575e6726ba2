"""An installation for each test of the doctor."""

import contextlib

import pytest

from bot.platform.config.settings import Settings
from local.redis import redis as redis_server
from local.world import git
from tests.bot.operate.installation import Installed


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    folder = tmp_path_factory.mktemp("git")
    git(folder, "init", "--quiet", "--bare", "digits.git")
    return folder


@pytest.fixture
async def here(tmp_path, monkeypatch, redis_url, repositories):
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    async with contextlib.AsyncExitStack() as stack:
        one = Installed(tmp_path, redis_url)
        stack.push_async_callback(one.redis.aclose)
        await one.start(stack, repositories)
        yield one
        await one.redis.config_set("appendonly", "yes")
        await one.redis.config_set("maxmemory-policy", "noeviction")
        await one.redis.flushall()
