"""The pictures of environments, taken again with SWEEPBOT_PICTURES=1: a start, its form, and its dialog."""

import os
from pathlib import Path

import pytest
import yaml
from playwright.async_api import expect

from tests.browser.conftest import Opened
from tests.browser.test_form import ask
from tests.browser.test_pictures import shoot
from tests.scenarios.local_world import Instance

DEPLOY = Path(__file__).parents[2] / "deploy" / "environments"
SERVER = "from http.server import *; HTTPServer(('', 8888), SimpleHTTPRequestHandler).serve_forever()"
CONFIG = f"""
environments:
  namespace: environments
  images:
    jupyter: {{image: "python:3.11-slim", command: [sh, -c, "mkdir -p api && python3 -c \\"{SERVER}\\""]}}
  sizes: {{m: {{cpu: 4, memory: 16Gi}}, l: {{cpu: 8, memory: 64Gi}}}}
  url: "http://{{name}}.env.example/"
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not os.environ.get("SWEEPBOT_PICTURES"), reason="SWEEPBOT_PICTURES is not set"),
]


async def test_pictures_of_an_environment(opened: Opened, instance: Instance) -> None:
    for file in ("namespace.yaml", "rights.yaml"):
        for obj in yaml.safe_load_all((DEPLOY / file).read_text()):
            instance.here.store.create(obj)
    config = instance.here.folder / "config.yaml"
    config.write_text(f"{config.read_text()}{CONFIG}")
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
    await expect(page.locator("#modal")).to_contain_text("Login")
    await shoot(page, "environment-open")
