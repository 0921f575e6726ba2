"""An environment with a real code-server, opened in a browser.

code-server isn't a dependency of this project, and compiles for minutes: SWEEPBOT_CODE_SERVER names the file
out/node/entry.js of `npm install code-server`, which needs its own version of Node.js.
"""

import asyncio
import os
import re

import pytest
from playwright.async_api import async_playwright

from bot.platform.config.environments import EnvironmentImage
from bot.workspaces.environments.cluster import load
from bot.workspaces.environments.idle_job import IdleJob
from bot.workspaces.environments.requests import Verb
from local.kubernetes.node.kubelet import Kubelet
from tests.bot.workspaces.environments.test_idle import Source
from tests.bot.workspaces.environments.world import World
from tests.browser.conftest import CHROMIUM, QUIET
from tests.free_port import is_free

PORT = 8080
CODE_SERVER = os.environ.get("SWEEPBOT_CODE_SERVER", "")
IMAGE = EnvironmentImage(
    name="code", image="python:3.11-slim", server="code-server", command=("node", CODE_SERVER)
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CODE_SERVER, reason="SWEEPBOT_CODE_SERVER is not set"),
    pytest.mark.skipif(not CHROMIUM, reason="Chromium isn't installed (Debian's package chromium)"),
    pytest.mark.skipif(not is_free(PORT), reason=f"port {PORT}, which the image has, is in use"),
]


@pytest.fixture
async def world(redis, tmp_path):
    async with World(redis, images=(IMAGE,), url=f"http://localhost:{PORT}/").started() as world:
        kubelet = Kubelet(world.kubernetes, {"gpu-1": 1}, "127.0.0.1:1", {}, tmp_path, retry=0.2)
        kubelet.start()
        yield world
        await kubelet.close()


async def use(world):
    """Return what Sweepbot reads from the environment's server."""
    job = IdleJob(world.clients, world.redis, Source())
    return await job.server_use(await load("lab", world.clients), world.pod())


async def test_code_server_opens_with_its_password_and_its_use_is_unknown_before(world):
    await world.ask(Verb.START)
    async with asyncio.timeout(200), async_playwright() as playwright:
        while world.slack.texts() != ["lab: Running"]:
            await world.round()
            await asyncio.sleep(0.1)
        assert await use(world) is None
        await world.ask(Verb.OPEN, view="V1")
        shown = str(world.slack.views["V1"])
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = await browser.new_page()
        page.set_default_timeout(200_000)
        await page.goto(re.search(r"'url': '([^']+)'", shown)[1])
        await page.locator("input[type=password]").fill(re.search(r"```([0-9a-f]{40})```", shown)[1])
        await page.get_by_role("button").click()
        await page.locator(".monaco-workbench").wait_for()
        while await use(world) is None:  # noqa: ASYNC110 - until its first heartbeat
            await asyncio.sleep(0.5)
        await browser.close()
