"""The pictures of the README, taken again with SWEEPBOT_PICTURES=1: real sweeps as users see them."""

import os
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from playwright.async_api import Page, expect

from tests.browser.conftest import Opened
from tests.browser.test_form import ask, choose
from tests.scenarios.local_world import Instance, until

IMAGES = Path(__file__).parents[2] / "docs" / "images"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not os.environ.get("SWEEPBOT_PICTURES"), reason="SWEEPBOT_PICTURES is not set"),
]


async def test_pictures(opened: Opened, instance: Instance) -> None:
    instance.commit("Make the hidden layers wider", {"README.md": "# Digits\n"})
    ada = await opened("ada")
    instance.slack.say(
        "grace", "sweeps", "The new layers are on main. Who wants to find a good learning rate?"
    )
    sweep = await instance.sweep("branch=main gpus=1 space=lr")
    await sweep.shows("Best so far", "2 running")
    await picture(ada, "parent", sweep.id, thread=False)
    await picture(ada, "thread", sweep.id)
    await ada.get_by_role("button", name="home").click()
    await expect(ada.get_by_label("Home")).to_contain_text(sweep.id)
    await expect(ada.get_by_label("Home")).to_contain_text("GPUs free")
    await expect(ada.get_by_label("Home")).not_to_contain_text("Loading")
    await shoot(ada, "home")
    await ada.get_by_role("button", name="# sweeps").click()
    phone = await opened("ada", width=400, height=800)
    await picture(phone, "phone", sweep.id, thread=False)
    await sweep.click_cancel("ada")
    await sweep.posts("GPUs are free")
    await sweep.shows("Cancelled")
    await picture(ada, "cancelled", sweep.id)
    grace = await opened("grace")
    failing = await instance.sweep("branch=main gpus=1 space=crash", "grace")
    await failing.shows("ValueError")
    await failing.posts(":x:")
    await picture(grace, "failure", failing.id)


async def test_pictures_of_the_results(opened: Opened, instance: Instance) -> None:
    ada = await opened("ada", height=1400)
    sweep = await instance.sweep("branch=main gpus=1 space=lr")
    await sweep.posts("Results of", "results.csv")
    await picture(ada, "results", sweep.id)
    uploaded = instance.slack.workspace.files.values()
    drawn = next(each["content"] for each in uploaded if each["name"] == f"{sweep.id}.png")
    (IMAGES / "sweep.png").write_bytes(drawn)
    await instance.types(f"curves {sweep.id}")
    name = f"{sweep.id}-curves.png"
    curves = await until(
        lambda: next((each.get("content") for each in uploaded if each["name"] == name), None),
        "the curves come",
    )
    (IMAGES / "curves.png").write_bytes(curves)


async def test_pictures_of_the_form(opened: Opened, instance: Instance) -> None:
    page = await opened("ada")
    form = await ask(page, "/sweep")
    await choose(form, "Branch or tag", "main", "main")
    await form.get_by_label("Space").click()
    await expect(form.get_by_role("option", name="lr")).to_be_visible()
    await shoot(page, "modal")
    await form.get_by_role("option", name="lr").click()
    await form.get_by_role("button", name="Preview").click()
    await expect(form).to_contain_text("Example trial")
    await shoot(page, "preview")


async def picture(page: Page, name: str, sweep: str, *, thread: bool = True) -> None:
    messages = page.get_by_role("log", name="Messages").get_by_role("listitem")
    if thread:  # the end, below, is of the same thread
        await messages.filter(has_text=f"{sweep} ·").first.get_by_title("Reply in a thread").click()
    await shoot(page, name)


async def shoot(page: Page, name: str) -> None:
    await page.mouse.move(640, 20)  # over nothing that would light up
    await page.evaluate("Promise.all([...document.images].map((image) => image.decode()))")
    shot = Image.open(BytesIO(await page.screenshot(animations="disabled", caret="hide"))).convert("RGB")
    shot.quantize(256, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)
