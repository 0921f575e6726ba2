"""Environments with a real JupyterLab and a real code-server, opened in a browser.

Neither is a dependency of this project. The test installs JupyterLab into a virtual environment of its own.
code-server compiles for minutes, so its test uses an installed one: SWEEPBOT_CODE_SERVER names the file
out/node/entry.js of `npm install code-server`, which needs its own version of Node.js.
"""

import asyncio
import contextlib
import os
import re
import socket
import subprocess

import aiohttp
import pytest
from playwright.async_api import async_playwright

from bench.environments import python_of
from bot.config.environments import EnvironmentImage
from bot.environments.cluster import load
from bot.environments.idle_job import IdleJob
from bot.environments.requests import Verb
from local.kubernetes.kubelet import Kubelet
from tests.bot.environments.test_idle import Source
from tests.bot.environments.world import World
from tests.browser.conftest import CHROMIUM, QUIET

PORT, CODE_PORT = 8888, 8080  # the images have them
CODE_SERVER = os.environ.get("SWEEPBOT_CODE_SERVER", "")
ARGUMENTS = ("-m", "jupyterlab", "--allow-root")  # the local nodes run as whoever tests


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


pytestmark = [
    pytest.mark.slow,
    *(
        pytest.mark.skipif(not is_free(port), reason=f"port {port}, which an image has, is in use")
        for port in (PORT, CODE_PORT)
    ),
]


@pytest.fixture(scope="module")
def jupyter():
    try:
        command = (python_of("jupyter"), *ARGUMENTS)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"Jupyter can't be installed: {error}")
    return EnvironmentImage(name="jupyter", image="python:3.11-slim", command=command)


@contextlib.asynccontextmanager
async def running(redis, folder, image, url):
    """Start a world whose node runs this image, and an environment with it."""
    async with World(redis, images=(image,), url=url).started() as world:
        kubelet = Kubelet(world.kubernetes, {"gpu-1": 1}, "127.0.0.1:1", {}, folder, retry=0.2)
        kubelet.start()
        await world.ask(Verb.START)
        await until(world, "lab: Running")
        yield world
        await kubelet.close()


@pytest.fixture
async def world(redis, tmp_path, jupyter):
    async with running(redis, tmp_path, jupyter, f"http://127.0.0.1:{PORT}/{{name}}/") as world:
        yield world


async def until(world, text):
    """Reconcile until its message says this."""
    async with asyncio.timeout(200):
        while world.slack.texts() != [text]:
            await world.round()
            await asyncio.sleep(0.1)


async def opened(world, view):
    """Return the link and the login of the modal."""
    await world.ask(Verb.OPEN, view=view)
    shown = str(world.slack.views[view])
    return re.search(r"'url': '([^']+)'", shown)[1], re.search(r"```([0-9a-f]{40})```", shown)[1]


@contextlib.asynccontextmanager
async def page_of(url):
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = await browser.new_page()
        page.set_default_timeout(200_000)
        await page.goto(url)
        yield page
        await browser.close()


async def use(world):
    """Return what Sweepbot reads from the environment's server."""
    job = IdleJob(world.clients, world.redis, Source())
    return await job.server_use(await load("lab", world.clients), world.pod())


async def test_jupyter_opens_with_the_login_of_its_owner_and_keeps_its_home(world):
    url, login = await opened(world, "V1")
    if CHROMIUM:
        async with page_of(url) as page:
            await page.get_by_label("Password or token").fill(login)
            await page.get_by_role("button", name="Log in", exact=True).click()
            await page.get_by_role("menuitem", name="Kernel").wait_for()
    async with aiohttp.ClientSession() as browser:
        assert (await browser.get(f"{url}api/kernels")).status == 403
        headers = {"Authorization": f"token {login}"}
        note = {"type": "file", "format": "text", "content": "it works"}
        written = await browser.put(f"{url}api/contents/note.txt", json=note, headers=headers)
        assert written.status == 201
        assert (await use(world)).busy is False
        await world.ask(Verb.STOP)
        await until(world, "lab: Stopped by <@UOWNER>")
        await world.ask(Verb.START, request_id="again")
        await until(world, "lab: Running")
        _, new = await opened(world, "V2")
        assert (await browser.get(f"{url}api/contents/note.txt", headers=headers)).status == 403
        headers = {"Authorization": f"token {new}"}
        again = await browser.get(f"{url}api/contents/note.txt", headers=headers)
        assert again.status == 200, await again.text()
        assert (await again.json())["content"] == "it works"


@pytest.mark.skipif(not CODE_SERVER, reason="SWEEPBOT_CODE_SERVER is not set")
@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed (Debian's package chromium)")
async def test_code_server_opens_with_its_password_and_its_use_is_unknown_before(redis, tmp_path):
    image = EnvironmentImage(
        name="code", image="python:3.11-slim", server="code-server", command=("node", CODE_SERVER)
    )
    async with running(redis, tmp_path, image, f"http://127.0.0.1:{CODE_PORT}/") as world:
        url, login = await opened(world, "V1")
        assert await use(world) is None
        async with page_of(url) as page:
            await page.locator("input[type=password]").fill(login)
            await page.get_by_role("button").click()
            await page.locator(".monaco-workbench").wait_for()
            async with asyncio.timeout(200):
                while await use(world) is None:  # noqa: ASYNC110 - its first heartbeat
                    await asyncio.sleep(0.5)
