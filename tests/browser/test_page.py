"""The page of the local Slack, with a Sweepbot behind it, as a person uses it with mouse or keyboard."""

import re

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import Opened
from tests.scenarios.local_world import Instance

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SWEEP = "/sweep branch=main gpus=1 space=held"


def messages(page: Page, words: str) -> Locator:
    return page.get_by_role("log", name="Messages").get_by_role("listitem").filter(has_text=words)


def replies(page: Page, words: str) -> Locator:
    return page.get_by_role("log", name="Replies").get_by_role("listitem").filter(has_text=words)


async def test_page_starts_follows_and_cancels_a_sweep(opened: Opened, instance: Instance) -> None:
    page = await opened("ada")
    await page.get_by_role("textbox", name="Message").fill(SWEEP)
    await page.get_by_role("button", name="Send").first.click()
    await expect(messages(page, "queued. Its thread")).to_contain_text("Only visible to you")
    parent = messages(page, "Running")  # the same message was "Building" before; nothing is reloaded
    await expect(parent).to_contain_text("0 of 2 trials · 2 running")
    await parent.get_by_title("Reply in a thread").click()
    await expect(parent).to_contain_text("✓ First trial started")
    await parent.get_by_role("button", name="Cancel sweep").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Stops all running trials")
    await dialog.get_by_role("button", name="Keep running").click()
    await expect(dialog).to_be_hidden()
    assert instance.pods_alive()
    await parent.get_by_role("button", name="Cancel sweep").click()
    await dialog.get_by_role("button", name="Cancel sweep").click()
    await expect(replies(page, "All pods are gone and the GPUs are free")).to_be_visible()
    await expect(messages(page, "Cancelled by ada")).to_be_visible()
    assert await page.get_by_role("button", name="Cancel sweep").count() == 0
    assert not instance.pods_alive()


async def test_page_works_with_the_keyboard(opened: Opened, instance: Instance) -> None:
    page = await opened("grace")
    await tab_to(page, page.get_by_role("textbox", name="Message"))
    await page.keyboard.type("/sw")
    await page.keyboard.press("Tab")  # completes the command
    await page.keyboard.type(SWEEP.removeprefix("/sweep "))
    await page.keyboard.press("Enter")
    parent = messages(page, "held on main").filter(has_text="running")
    await expect(parent).to_be_visible()
    await tab_to(page, parent.get_by_title("Reply in a thread"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("textbox", name="Reply")).to_be_focused()
    await expect(parent).to_contain_text("✓ First trial started")
    await tab_to(page, parent.get_by_role("button", name="Cancel sweep"))
    await page.keyboard.press("Enter")
    await tab_to(page, page.get_by_role("dialog").get_by_role("button", name="Cancel sweep"))
    await page.keyboard.press("Enter")
    await expect(replies(page, "All pods are gone and the GPUs are free")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("log", name="Replies")).to_be_hidden()
    assert not instance.pods_alive()


async def test_page_shows_an_error_to_its_user_only(opened: Opened) -> None:
    ada, grace = await opened("ada"), await opened("grace")
    await ada.get_by_role("textbox", name="Message").fill("/sweep branch=mian space=tiny")
    await ada.keyboard.press("Enter")
    mistake = messages(ada, "Did you mean main?")
    await expect(mistake).to_contain_text("Only visible to you")
    await grace.get_by_role("textbox", name="Message").fill("still here")
    await grace.keyboard.press("Enter")
    await expect(messages(ada, "still here")).to_be_visible()
    assert await messages(grace, "Did you mean main?").count() == 0


async def test_mlflow_link_opens_runs_named_by_trial(opened: Opened, instance: Instance) -> None:
    page = await opened("ada")
    sweep = await instance.sweep('branch=main space=lr trials=1 cmd="python train.py --epochs=1"')
    await sweep.posts("Finished:")
    async with page.context.expect_page() as tab:
        await messages(page, f"{sweep.id} ·").get_by_role("link", name="Runs in MLflow").click()
    [trial] = sweep.objects("Trial")
    await expect((await tab.value).get_by_role("link", name=trial["metadata"]["name"])).to_be_visible()


async def test_page_opens_the_thread_of_a_reply_that_the_channel_shows(opened: Opened) -> None:
    page = await opened("ada")
    shown = messages(page, "replied to a thread").last
    sweep = (
        (await shown.get_by_role("button", name="replied to a thread").inner_text()).split(":")[1].split()[-1]
    )
    await shown.get_by_role("button", name="replied to a thread").click()
    await expect(replies(page, f"{sweep} ·").last).to_be_visible()


async def test_page_at_the_end_shows_replies_beside_an_open_thread(opened: Opened) -> None:
    page = await opened("ada")
    write = page.get_by_role("textbox", name="Message")
    for _ in range(12):  # more than fits
        await write.fill("/sweep help")
        await write.press("Enter")
    parent = page.get_by_role("button", name="replies").last
    await parent.evaluate("button => button.click()")  # without scrolling to it
    await expect(page.get_by_role("log", name="Replies")).to_be_visible()
    await write.fill("/sweep list")
    await write.press("Enter")
    await expect(page.get_by_role("log", name="Messages").get_by_role("listitem").last).to_be_in_viewport()
    await page.get_by_role("log", name="Messages").evaluate("log => { log.scrollTop = 0; }")
    await write.fill("Here again")
    await write.press("Enter")
    await expect(messages(page, "Here again")).to_be_in_viewport()


async def test_page_shows_no_raw_markup(opened: Opened) -> None:
    """In all messages so far: no emoji names, and no links or mentions in brackets."""
    page = await opened("ada")
    await page.get_by_role("textbox", name="Message").fill("/")
    await expect(page.get_by_text("/gpus mine")).to_be_visible()
    await page.get_by_role("textbox", name="Message").fill("")
    await messages(page, "Cancelled by").first.get_by_role("button", name="replies").click()
    for log in ("Messages", "Replies"):
        text = await page.get_by_role("log", name=log).inner_text()
        assert "Cancelled by" in text
        for mark in (r":[a-z_]+:", r"<[@h]", r"```", r"\*"):
            assert not re.search(mark, text), f"{mark} in {text}"


async def tab_to(page: Page, wanted: Locator) -> None:
    for _ in range(60):
        if await wanted.evaluate("one => one === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    pytest.fail(f"{wanted} can't be reached with the keyboard")
