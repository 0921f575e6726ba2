"""An environment with a real Jupyter server, from the command to its home after a second start.

Jupyter isn't a dependency of this project: the test installs it into a virtual environment of its own.
"""

import asyncio
import re
import socket
import subprocess

import aiohttp
import pytest
from playwright.async_api import async_playwright, expect

from bench.environments import python_of
from bot.config.environments import EnvironmentImage
from bot.environments.cluster import load
from bot.environments.idle_job import IdleJob
from bot.environments.requests import Verb
from local.kubernetes.kubelet import Kubelet
from tests.bot.environments.test_idle import Source
from tests.bot.environments.world import World
from tests.browser.conftest import CHROMIUM, QUIET

PORT = 8888
ARGUMENTS = ("-m", "jupyterlab", "--allow-root")  # the local nodes run as whoever tests


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_free(PORT), reason=f"port {PORT}, which the image has, is in use"),
]


@pytest.fixture(scope="module")
def jupyter():
    try:
        command = (python_of("jupyter"), *ARGUMENTS)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"Jupyter can't be installed: {error}")
    return EnvironmentImage(name="jupyter", image="python:3.11-slim", command=command)


@pytest.fixture
async def world(redis, tmp_path, jupyter):
    url = f"http://127.0.0.1:{PORT}/{{name}}/"
    async with World(redis, images=(jupyter,), url=url).started() as world:
        kubelet = Kubelet(world.kubernetes, {"gpu-1": 1}, "127.0.0.1:1", {}, tmp_path / "pods", retry=0.2)
        kubelet.start()
        yield world
        await kubelet.close()


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


async def log_in(url, login):
    """Open the link in a browser, and type the login, as the dialog says."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = await browser.new_page()
        await page.goto(url)
        await page.get_by_label("Password or token").fill(login)
        await page.get_by_role("button", name="Log in", exact=True).click()
        await expect(page.get_by_role("menuitem", name="Kernel")).to_be_visible(timeout=200_000)
        await browser.close()


async def test_jupyter_opens_with_the_login_of_its_owner_and_keeps_its_home(world):
    await world.ask(Verb.START)
    await until(world, "lab: Running")
    url, login = await opened(world, "V1")
    if CHROMIUM:
        await log_in(url, login)
    async with aiohttp.ClientSession() as browser:
        assert (await browser.get(f"{url}api/kernels")).status == 403
        headers = {"Authorization": f"token {login}"}
        note = {"type": "file", "format": "text", "content": "it works"}
        written = await browser.put(f"{url}api/contents/note.txt", json=note, headers=headers)
        assert written.status == 201
        pod = world.pod()
        job = IdleJob(world.clients, world.redis, Source())
        use = await job.server_use(await load("lab", world.clients), pod)
        assert use is not None
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
