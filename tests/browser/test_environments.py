"""An environment with a real JupyterLab, from the form to its deletion.

JupyterLab isn't a dependency of this project: the test installs it into a virtual environment of its own.
SWEEPBOT_PICTURES=1 takes the pictures again.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from playwright.async_api import Locator, Page, expect

from bench.environments import python_of
from bot.workspaces.environments.idle import jupyter_use
from local import demo_environments
from local.demo_environments import PORT
from tests.browser.conftest import Opened
from tests.browser.test_form import ask
from tests.browser.test_pictures import shoot
from tests.free_port import is_free
from tests.scenarios.local_world import Instance

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not is_free(PORT), reason=f"port {PORT}, which Jupyter's image has, is in use"),
]
NAMESPACE = "environments"
NOTE = {"type": "file", "format": "text", "content": "it works"}


@pytest.fixture(scope="module")
def jupyter() -> list[str]:
    try:  # --allow-root: the local node runs as whoever tests
        return [python_of("jupyter"), "-m", "jupyterlab", "--allow-root"]
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"JupyterLab can't be installed: {error}")


async def test_environment_from_its_form_to_its_deletion_keeps_its_home(
    opened: Opened, instance: Instance, jupyter: list[str]
) -> None:
    configure(instance, jupyter)
    await instance.kill("all")
    page = await opened("ada")
    form = await ask(page, "/env")
    await expect(form).to_contain_text("The home is kept")
    await picture(page, "environment-form")
    await form.get_by_label("Name").fill("lab")
    await form.get_by_role("button", name="Start").click()
    await expect(form).to_contain_text("Starting")
    await form.get_by_role("button", name="Close").last.click()
    message = shown(page)
    await expect(message).to_contain_text("lab · Running")
    await picture(page, "environment")
    await message.get_by_role("button", name="Open").click()
    await expect(page.locator("#modal")).to_contain_text("Credentials")
    await picture(page, "environment-open")
    url, login = await credentials(page)
    await log_in(page, url, login)
    await asked(url, login, "put", "contents/note.txt", 201, json=NOTE)
    status, kernels = [await asked(url, login, "get", path) for path in ("status", "kernels")]
    use = jupyter_use(status, kernels)
    assert use is not None
    assert use.busy is False
    await refused(await opened("grace"), login)
    await confirm(page, message, "Stop")
    await expect(message).to_contain_text("lab · Stopped by")
    await message.get_by_role("button", name="Start").click()
    await expect(message).to_contain_text("lab · Running")
    await message.get_by_role("button", name="Open").click()
    _, second = await credentials(page)
    await asked(url, login, "get", "contents/note.txt", 403)
    assert "it works" in await asked(url, second, "get", "contents/note.txt")
    await confirm(page, message, "Stop")
    await expect(message).to_contain_text("lab · Stopped by")
    await confirm(page, message, "Delete")
    await expect(message).to_contain_text("Home lab is kept.")
    (home,) = instance.here.store.list("PersistentVolumeClaim", NAMESPACE)
    assert home["metadata"]["name"] == "home-lab"


def configure(instance: Instance, command: list[str]) -> None:
    """Add environments to the world, with this command in place of the demo's page."""
    demo_environments.install(instance.here)
    path = Path(instance.here.env["SWEEPBOT_CONFIG"])
    config = yaml.safe_load(path.read_text())
    config["environments"]["images"]["jupyter"]["command"] = command
    path.write_text(yaml.safe_dump(config, sort_keys=False))


def shown(page: Page) -> Locator:
    return page.get_by_role("log", name="Messages").get_by_role("listitem").filter(has_text="lab ·")


async def picture(page: Page, name: str) -> None:
    if os.environ.get("SWEEPBOT_PICTURES"):
        await shoot(page, name)


async def credentials(page: Page) -> tuple[str, str]:
    """Return the link and the login in the dialog, and close it."""
    dialog = page.locator("#modal")
    link = dialog.get_by_role("link", name="Open in browser")
    url, login = await link.get_attribute("href"), await dialog.locator("pre").inner_text()
    await dialog.get_by_role("button", name="Close").last.click()
    return url or "", login.strip()


async def log_in(page: Page, url: str, login: str) -> None:
    """Open JupyterLab as its owner does."""
    lab = await page.context.new_page()
    await lab.goto(url)
    await lab.get_by_label("Password or token").fill(login)
    await lab.get_by_role("button", name="Log in", exact=True).click()
    await expect(lab.get_by_role("menuitem", name="Kernel")).to_be_visible()
    await lab.close()


async def asked(url: str, login: str, method: str, path: str, status: int = 200, **body: Any) -> str:
    """Call Jupyter's own API, and return its answer."""
    headers = {"Authorization": f"token {login}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, f"{url}api/{path}", **body) as response,
    ):
        assert response.status == status
        return await response.text()


async def refused(page: Page, login: str) -> None:
    """Another person can neither open nor stop it, and doesn't see its login."""
    await shown(page).get_by_role("button", name="Open").click()
    await expect(page.locator("#modal")).to_contain_text("its credentials are personal")
    await page.locator("#modal").get_by_role("button", name="Close").last.click()
    await confirm(page, shown(page), "Stop")
    await expect(page.get_by_role("log", name="Messages")).to_contain_text("or an admin can stop lab")
    assert login not in await page.content()


async def confirm(page: Page, message: Locator, action: str) -> None:
    await message.get_by_role("button", name=action, exact=True).click()
    await page.locator("#confirm").get_by_role("button", name=action, exact=True).click()
