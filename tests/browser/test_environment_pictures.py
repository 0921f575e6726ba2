"""The pictures of environments, taken again with SWEEPBOT_PICTURES=1: a start, its form, and its dialog."""

import os

import pytest
from playwright.async_api import expect

from local import demo_environments
from tests.browser.conftest import Opened
from tests.browser.test_form import ask
from tests.browser.test_pictures import shoot
from tests.scenarios.local_world import Instance

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not os.environ.get("SWEEPBOT_PICTURES"), reason="SWEEPBOT_PICTURES is not set"),
]


async def test_pictures_of_an_environment(opened: Opened, instance: Instance) -> None:
    demo_environments.install(instance.here)
    await instance.kill("work")
    await instance.kill("serve")
    page = await opened("ada")
    form = await ask(page, "/env")
    await expect(form).to_contain_text("The home survives")
    await shoot(page, "environment-form")
    await form.get_by_label("Name").fill("lab")
    await form.get_by_role("button", name="Start").click()
    await expect(form).to_contain_text("Starting")
    await form.get_by_role("button", name="Close").last.click()
    message = (
        page.get_by_role("log", name="Messages").get_by_role("listitem").filter(has_text="lab · Running")
    )
    await expect(message).to_be_visible()
    await shoot(page, "environment")
    await message.get_by_role("button", name="Open").click()
    await expect(page.locator("#modal")).to_contain_text("Credentials")
    await shoot(page, "environment-open")
