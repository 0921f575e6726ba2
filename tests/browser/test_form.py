"""The form on the page: fields, menus with search, errors at their fields, also by keyboard."""

import asyncio
import contextlib

import pytest
from playwright.async_api import Locator, Page, expect

from handlers.settings import NOT_LOADED
from local.world import NAMESPACE
from tests.browser.conftest import Opened
from tests.browser.test_page import messages, tab_to
from tests.scenarios.local_world import WAIT_SECONDS, Instance

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


async def test_form_fills_previews_and_launches_a_sweep(opened: Opened, instance: Instance) -> None:
    page = await opened("ada")
    form = await ask(page, "/sweep")
    await choose(form, "Branch or tag", "mai", "main")
    await choose(form, "Space", "ti", "tiny")
    await form.get_by_role("button", name="More options").click()
    await form.get_by_label("Parallel trials").fill("3")
    await form.get_by_label("Max trials").fill("2")
    await form.get_by_role("button", name="Preview").click()
    await expect(form).to_contain_text("got parallel=3, trials=2")
    await form.get_by_label("Parallel trials").fill("2")
    await form.get_by_role("button", name="Preview").click()
    await expect(form).to_contain_text("Review sweep")
    await expect(form).to_contain_text("2 of 2 combinations, grid")
    await expect(form).to_contain_text("python tiny.py --width=1")
    await form.get_by_role("button", name="Launch sweep").click()
    await expect(form).to_contain_text("queued")
    started = await form.locator("code").inner_text()
    await form.get_by_role("button", name="Close").last.click()
    await expect(form).to_be_hidden()
    await expect(messages(page, f"{started} ·").first).to_contain_text("Finished")


async def test_form_works_with_the_keyboard(opened: Opened) -> None:
    page = await opened("grace")
    await tab_to(page, page.get_by_role("textbox", name="Message"))
    await page.keyboard.type("/sweep branch=main")
    await page.keyboard.press("Enter")
    form = page.get_by_role("dialog", name="New sweep")
    offered = form.get_by_role("option", name="tiny")
    async with asyncio.timeout(WAIT_SECONDS):
        while not await offered.is_visible():  # git hasn't responded in time
            await tab_to(page, form.get_by_label("Space"))
            await page.keyboard.press("ControlOrMeta+a")
            await page.keyboard.type("tin")
            with contextlib.suppress(AssertionError):
                await expect(offered).to_be_visible(timeout=5000)
    await expect(offered).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("Enter")
    await expect(form.get_by_label("Space")).to_have_value("tiny")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("Review sweep")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()


async def test_form_shows_an_error_found_in_git(opened: Opened) -> None:
    page = await opened("linus")
    form = await ask(page, "/sweep branch=mian")
    await choose(form, "Space", "tiny", "tiny")
    await form.get_by_role("button", name="Preview").click()
    await expect(form).to_contain_text("Did you mean main?")
    await form.get_by_role("button", name="Write a space inline").click()
    await expect(form.locator("textarea")).to_be_visible()
    await form.get_by_label("Space").fill("objective: {metric: loss, goal: smallest}")
    await form.get_by_role("button", name="Preview").click()
    await expect(form).to_contain_text(
        'your space:1: objective.goal: must be minimize or maximize; got "smallest"'
    )
    await form.get_by_role("button", name="Cancel").click()
    await expect(form).to_be_hidden()


async def test_home_shows_starts_and_cancels_sweeps(opened: Opened, instance: Instance) -> None:
    page = await opened("ada")
    await page.get_by_role("button", name="Sweepbot’s home").click()
    home = page.get_by_label("Home")
    await expect(home).to_contain_text("GPUs free")
    await expect(home).to_contain_text("Measured")
    await expect(home).not_to_contain_text("Loading")
    await home.get_by_role("button", name="New sweep").click()
    await expect(page.locator("#modal")).to_contain_text("Branch or tag")
    await page.keyboard.press("Escape")
    sweep = await instance.sweep("branch=main gpus=1 space=held")
    await sweep.shows("running")
    await tab_to(page, home.get_by_role("button", name="Refresh"))
    await page.keyboard.press("Enter")
    await expect(home).to_contain_text(f"{sweep.id} · Running")
    await expect(home.get_by_role("link", name=sweep.id).first).to_be_visible()
    await home.get_by_role("button", name="Cancel sweep").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel sweep").click()
    await expect(home.get_by_role("button", name="Cancel sweep")).to_have_count(0)
    await sweep.posts("GPUs are free")
    await home.get_by_role("button", name="Refresh").click()
    await expect(home).to_contain_text(f"{sweep.id} · Cancelled")


async def test_new_user_is_greeted_in_direct_messages(opened: Opened) -> None:
    page = await opened("linus")
    await page.get_by_role("textbox", name="Message").fill("/sweep help")
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="@ Sweepbot").click()
    await expect(messages(page, "Hi Linus Pauling!")).to_contain_text("You're in team speech.")


async def test_admin_sets_up_a_channel(opened: Opened, instance: Instance) -> None:
    page = await opened("ada")
    await page.get_by_role("button", name="# vision").click()
    form = await ask(page, "/sweep setup")
    await form.get_by_label("Daily digest").select_option("07:00")
    await choose(form, "Time zone", "berl", "Europe/Berlin")
    await form.get_by_role("button", name="Save").click()
    await expect(form).to_contain_text("Saved. #vision: repository digits, digest at 07:00 Europe/Berlin.")
    kept = instance.here.store.get("ConfigMap", NAMESPACE, "sweepbot-setup")
    assert kept
    assert "C01VISION00" in kept["data"]


async def ask(page: Page, text: str) -> Locator:
    """The dialog that comes when one types this, again if the bot has just started and says so."""
    form, early = page.locator("#modal"), page.get_by_text(NOT_LOADED)
    while not await form.is_visible():
        told = await early.count()
        await page.get_by_role("textbox", name="Message").fill(text)
        await page.keyboard.press("Enter")
        await expect(form.or_(early.nth(told)).locator("visible=true").first).to_be_visible()
    return form


async def choose(form: Locator, field: str, typed: str, option: str) -> None:
    """The form is updated after a branch was chosen, for its spaces."""
    box, before = form.get_by_role("combobox", name=field), await form.get_attribute("data-hash") or ""
    offered = form.get_by_role("option", name=option).first
    async with asyncio.timeout(WAIT_SECONDS):
        while not await offered.is_visible():  # the menu's text when git hasn't responded in time
            await box.click()
            await box.fill("")
            await box.fill(typed)
            with contextlib.suppress(AssertionError):
                await expect(offered).to_be_visible(timeout=5000)
    await offered.click()
    await expect(box).to_have_value(option)
    if field == "Branch or tag":
        await expect(form).not_to_have_attribute("data-hash", before)
